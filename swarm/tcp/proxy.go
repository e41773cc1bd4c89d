package tcp

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"golang.org/x/net/http/httpproxy"
	"golang.org/x/net/proxy"
)

// maxConnectAnswer bounds what a proxy says before it forwards, in bytes.
const maxConnectAnswer = 16 << 10

// FromEnvironment returns the proxy that the environment names for connections to a "host:port": HTTPS_PROXY, else
// ALL_PROXY, unless NO_PROXY excludes the host; nil for none. Names in lower case do as well. This machine itself has
// none.
func FromEnvironment(target string) (*url.URL, error) {
	conf := httpproxy.FromEnvironment()
	conf.HTTPSProxy = cmp.Or(conf.HTTPSProxy, os.Getenv("ALL_PROXY"), os.Getenv("all_proxy"))
	return conf.ProxyFunc()(&url.URL{Scheme: "https", Host: target})
}

// through connects to a target by way of a proxy: http or https with CONNECT, or socks5.
func through(ctx context.Context, via *url.URL, target string) (net.Conn, error) {
	var port string
	switch via.Scheme {
	case "http":
		port = "80"
	case "https":
		port = "443"
	case "socks5", "socks5h":
		return throughSOCKS(ctx, via, target)
	default:
		return nil, fmt.Errorf("proxy %s: want http, https or socks5", via.Redacted())
	}
	at := net.JoinHostPort(via.Hostname(), cmp.Or(via.Port(), port))
	raw, err := new(net.Dialer).DialContext(ctx, "tcp", at)
	if err != nil {
		return nil, fmt.Errorf("proxy %s: %w", via.Redacted(), err)
	}
	stop := context.AfterFunc(ctx, func() { raw.SetDeadline(time.Unix(1, 0)) })
	conn := raw
	if via.Scheme == "https" {
		conn = tls.Client(conn, &tls.Config{ServerName: via.Hostname()})
	}
	err = connect(conn, via.User, target)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("proxy %s: %w", via.Redacted(), err)
	}
	return conn, nil
}

// connect asks the proxy at the other end for a connection to a target (RFC 9110, section 9.3.6).
func connect(conn net.Conn, user *url.Userinfo, target string) error {
	r := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: target}, Host: target, Header: http.Header{"User-Agent": {""}}}
	if user != nil {
		password, _ := user.Password()
		r.Header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password)))
	}
	if err := r.Write(conn); err != nil {
		return err
	}
	in := bufio.NewReader(io.LimitReader(conn, maxConnectAnswer))
	response, err := http.ReadResponse(in, r)
	if err != nil {
		return err
	}
	switch {
	case response.StatusCode == http.StatusProxyAuthRequired:
		return errors.New("it wants a name and a password: give them in the proxy's URL, http://NAME:PASSWORD@HOST:PORT")
	case response.StatusCode/100 != 2:
		return fmt.Errorf("CONNECT %s: %s", target, response.Status)
	case in.Buffered() > 0:
		return errors.New("it speaks before it is spoken to")
	}
	return nil
}

func throughSOCKS(ctx context.Context, via *url.URL, target string) (net.Conn, error) {
	dialer, err := proxy.FromURL(via, new(net.Dialer))
	if err == nil {
		if d, ok := dialer.(proxy.ContextDialer); ok {
			var conn net.Conn
			if conn, err = d.DialContext(ctx, "tcp", target); err == nil {
				return conn, nil
			}
		}
	}
	return nil, fmt.Errorf("proxy %s: %w", via.Redacted(), err)
}
