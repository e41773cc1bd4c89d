package diagnose

import (
	"context"
	"errors"
	"net/url"
	"time"

	"pnode/swarm/tcp"
)

// throughProxy asks a proxy for a connection to a host and port, and hangs up. It returns the proxy's clock, too; zero if
// the proxy does not say it.
func throughProxy(ctx context.Context, proxy *url.URL, target string) (Test, time.Time) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	conn, date, err := tcp.Through(ctx, proxy, target)
	if err != nil {
		return explainProxy(err), date
	}
	conn.Close()
	return Test{Result: OK, Finding: Works, Says: "the proxy connects"}, date
}

func explainProxy(err error) Test {
	var failed *tcp.ProxyError
	if !errors.As(err, &failed) {
		return Test{Result: Fails, Finding: Failed, Says: "the proxy cannot be asked", Do: "correct HTTPS_PROXY"}
	}
	t := Test{Result: Fails, Says: failed.Says(), Do: failed.Do()}
	switch failed.Answer {
	case tcp.WantsLogin, tcp.RefusesLogin, tcp.OtherLogin:
		t.Finding = ProxyLogin
	case tcp.Denies:
		t.Finding = ProxyDenies
	case tcp.Cannot:
		t.Finding = ProxyCannot
	case tcp.NoProxy:
		t.Finding = Foreign
	default:
		t.Finding = findingOf(failed.Err)
	}
	return t
}

func explainProxySetting(err error) Test {
	return Test{
		Part: Proxy, Target: "of the environment", Did: "read HTTPS_PROXY and ALL_PROXY", Result: Fails, Finding: Failed,
		Says: err.Error(), Do: "correct the variable, or unset it where there is no proxy",
	}
}
