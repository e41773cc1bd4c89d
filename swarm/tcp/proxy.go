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
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpproxy"
	"golang.org/x/net/proxy"
)

// maxConnectAnswer bounds what a proxy says before it forwards, in bytes.
const maxConnectAnswer = 16 << 10

// proxyPorts holds the port of a proxy whose URL names none, by scheme.
var proxyPorts = map[string]string{"http": "80", "https": "443", "socks5": "1080", "socks5h": "1080"}

// FromEnvironment returns the proxy that the environment names for connections to a "host:port": HTTPS_PROXY, else
// ALL_PROXY, unless NO_PROXY excludes the host; nil for none. Names in lower case do as well. This machine itself has
// none. The error names the variable and not its value, which may hold a password.
func FromEnvironment(target string) (*url.URL, error) {
	conf := httpproxy.FromEnvironment()
	for _, name := range []string{"HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"} {
		value := os.Getenv(name)
		if value == "" {
			continue
		}
		u := proxyURL(value)
		if u == nil {
			return nil, fmt.Errorf("%s is no URL of a proxy: want http://HOST:PORT, https://HOST:PORT or socks5://HOST:PORT, "+
				"with USER:PASSWORD@ before HOST if the proxy wants them, and in these %%40 for @, %%3A for :, %%2F for /, %%23 for #, %%25 for %%", name)
		}
		conf.HTTPSProxy = u.String()
		break
	}
	return conf.ProxyFunc()(&url.URL{Scheme: "https", Host: target})
}

// proxyURL reads the URL of a proxy, http if it has no scheme; nil if it is none.
func proxyURL(text string) *url.URL {
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil || proxyPorts[u.Scheme] == "" || u.Hostname() == "" || strings.Trim(u.Path, "/")+u.RawQuery+u.Fragment != "" {
		return nil
	}
	if port, err := strconv.ParseUint(cmp.Or(u.Port(), proxyPorts[u.Scheme]), 10, 16); err != nil || port == 0 {
		return nil
	}
	return u
}

// ProxyAddress returns the "host:port" of a proxy.
func ProxyAddress(via *url.URL) string {
	return net.JoinHostPort(via.Hostname(), cmp.Or(via.Port(), proxyPorts[via.Scheme]))
}

// Through connects to a "host:port" by way of a proxy: http or https with CONNECT, or socks5. It returns the time by the
// proxy's clock too, zero where it does not say it. An error is a *ProxyError.
func Through(ctx context.Context, via *url.URL, target string) (conn net.Conn, date time.Time, err error) {
	if strings.HasPrefix(via.Scheme, "socks5") {
		conn, err = throughSOCKS(ctx, via, target)
	} else {
		conn, date, err = throughHTTP(ctx, via, target)
	}
	if err == nil {
		return conn, date, nil
	}
	failed := &ProxyError{}
	if !errors.As(err, &failed) {
		failed.Err = err
	}
	failed.Proxy, failed.Target = ProxyAddress(via), target
	return nil, date, failed
}

func throughHTTP(ctx context.Context, via *url.URL, target string) (net.Conn, time.Time, error) {
	raw, err := new(net.Dialer).DialContext(ctx, "tcp", ProxyAddress(via))
	if err != nil {
		return nil, time.Time{}, err
	}
	stop := context.AfterFunc(ctx, func() { raw.SetDeadline(time.Unix(1, 0)) })
	conn := raw
	if via.Scheme == "https" {
		conn = tls.Client(conn, &tls.Config{ServerName: via.Hostname()})
	}
	date, err := connect(conn, via.User, target)
	if !stop() {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		return nil, date, err
	}
	return conn, date, nil
}

// connect asks the proxy at the other end for a connection to a target (RFC 9110, section 9.3.6).
func connect(conn net.Conn, user *url.Userinfo, target string) (date time.Time, err error) {
	r := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: target}, Host: target, Header: http.Header{"User-Agent": {""}}}
	if user != nil {
		password, _ := user.Password()
		r.Header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password)))
	}
	if err := r.Write(conn); err != nil {
		return date, err
	}
	in := bufio.NewReader(io.LimitReader(conn, maxConnectAnswer))
	response, err := http.ReadResponse(in, r)
	if err != nil {
		if !isSocketError(err) { // a text that is no HTTP
			err = &ProxyError{Answer: NoProxy}
		}
		return date, err
	}
	date, _ = http.ParseTime(response.Header.Get("Date")) // many say none
	refused := &ProxyError{Status: response.Status}
	switch code := response.StatusCode; {
	case code == http.StatusProxyAuthRequired, code == http.StatusUnauthorized: // as tinyproxy has it
		refused.Answer = WantsLogin
		if user != nil {
			refused.Answer = RefusesLogin
		}
		if offers := response.Header.Values("Proxy-Authenticate"); len(offers) > 0 && !slices.ContainsFunc(offers, isBasic) {
			refused.Answer = OtherLogin
		}
	case code >= 500:
		refused.Answer = Cannot
	case code/100 != 2:
		refused.Answer = Denies
	case in.Buffered() > 0: // it speaks before it is spoken to
		refused.Answer = NoProxy
	default:
		return date, nil
	}
	return date, refused
}

// isBasic reports whether a challenge asks for a name and a password as they are (RFC 7617).
func isBasic(challenge string) bool {
	scheme, _, _ := strings.Cut(strings.TrimSpace(challenge), " ")
	return strings.EqualFold(scheme, "basic")
}

// throughSOCKS has package proxy speak SOCKS 5 (RFC 1928), whose errors about what the proxy answers are texts.
func throughSOCKS(ctx context.Context, via *url.URL, target string) (net.Conn, error) {
	dialer, err := proxy.FromURL(via, new(net.Dialer))
	if err != nil {
		return nil, err
	}
	d, ok := dialer.(proxy.ContextDialer)
	if !ok {
		return nil, fmt.Errorf("a dialer of type %T, want one with a context", dialer)
	}
	conn, err := d.DialContext(ctx, "tcp", target)
	if err == nil || isSocketError(err) {
		return conn, err
	}
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	text := err.Error()
	reply, answered := strings.CutPrefix(text, "unknown error ")
	switch {
	case answered && (reply == "connection not allowed by ruleset" || reply == "command not supported"):
		return nil, &ProxyError{Answer: Denies, Status: reply}
	case answered:
		return nil, &ProxyError{Answer: Cannot, Status: reply}
	case text == "username/password authentication failed":
		return nil, &ProxyError{Answer: RefusesLogin, Status: text}
	case text == "no acceptable authentication methods" && via.User != nil:
		return nil, &ProxyError{Answer: OtherLogin, Status: text}
	case text == "no acceptable authentication methods":
		return nil, &ProxyError{Answer: WantsLogin, Status: text}
	}
	return nil, &ProxyError{Answer: NoProxy}
}
