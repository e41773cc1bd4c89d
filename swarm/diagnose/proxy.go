package diagnose

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// maxProxyAnswer bounds what is read of a proxy's answer.
const maxProxyAnswer = 16 << 10

// proxyOutcome holds the answer of a proxy that was asked for a connection.
type proxyOutcome struct {
	outcome
	// status is that of its answer, such as "403 Forbidden"; empty without one.
	status string
	// date is the proxy's clock; zero if it does not say it.
	date time.Time
}

// throughProxy asks an HTTP proxy for a connection to a host and port, and hangs up. Of a SOCKS proxy it finds out only
// whether it accepts connections.
func throughProxy(ctx context.Context, proxy *url.URL, target string) proxyOutcome {
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	if !slices.Contains([]string{"http", "https", "socks5", "socks5h"}, proxy.Scheme) {
		return proxyOutcome{outcome: outcome{finding: Failed, err: fmt.Errorf("its scheme is %q, want http, https or socks5", printable(proxy.Scheme))}}
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", proxyAddress(proxy))
	if err != nil {
		return proxyOutcome{outcome: outcome{finding: findingOf(err), err: err}}
	}
	defer conn.Close()
	if strings.HasPrefix(proxy.Scheme, "socks") {
		return proxyOutcome{outcome: outcome{finding: Works, connected: true}}
	}
	end, _ := ctx.Deadline()
	if err := conn.SetDeadline(end); err != nil {
		return proxyOutcome{outcome: outcome{finding: Failed, err: err}}
	}
	if proxy.Scheme == "https" {
		conn = tls.Client(conn, &tls.Config{ServerName: proxy.Hostname()})
	}
	request := "CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n"
	if proxy.User != nil {
		password, _ := proxy.User.Password()
		login := base64.StdEncoding.EncodeToString([]byte(proxy.User.Username() + ":" + password))
		request += "Proxy-Authorization: Basic " + login + "\r\n"
	}
	o := proxyOutcome{outcome: outcome{connected: true}}
	var answer *http.Response
	if _, o.err = io.WriteString(conn, request+"\r\n"); o.err == nil {
		answer, o.err = http.ReadResponse(bufio.NewReader(io.LimitReader(conn, maxProxyAnswer)), &http.Request{Method: http.MethodConnect})
	}
	if o.err != nil {
		if o.finding = findingOf(o.err); o.finding == Failed {
			o.finding = Foreign
		}
		return o
	}
	answer.Body.Close()
	o.status = printable(answer.Status)
	o.date, _ = http.ParseTime(answer.Header.Get("Date")) // many say none
	switch answer.StatusCode {
	case http.StatusOK:
		o.finding = Works
	case http.StatusProxyAuthRequired:
		o.finding = ProxyLogin
	default:
		o.finding = ProxyDenies
	}
	return o
}

// proxyAddress returns a proxy's host and port.
func proxyAddress(proxy *url.URL) string {
	port := proxy.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443", "socks5": "1080", "socks5h": "1080"}[proxy.Scheme]
	}
	return net.JoinHostPort(proxy.Hostname(), port)
}

// printable returns the beginning of what somebody else wrote, as it can be shown on a terminal.
func printable(s string) string {
	const most = 60
	b := []byte(s[:min(len(s), most)])
	for i, c := range b {
		if c < ' ' || c > '~' {
			b[i] = '?'
		}
	}
	return string(b)
}
