package netlab

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
)

// proxy serves CONNECT to port 443 at an address of the gateway, through the gateway.
func (l *Lab) proxy(gateway *space, at netip.Addr) {
	l.t.Helper()
	var listener net.Listener
	var err error
	entered := gateway.run(func() { listener, err = net.Listen("tcp4", netip.AddrPortFrom(at, ProxyPort).String()) })
	if err = errors.Join(entered, err); err != nil {
		l.t.Fatalf("netlab: proxy: %v", err)
	}
	l.t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go serveProxy(gateway, conn)
		}
	}()
}

// serveProxy carries out one request and closes the connection after it.
func serveProxy(gateway *space, conn net.Conn) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	request, err := http.ReadRequest(r)
	if err != nil {
		return
	}
	_, port, err := net.SplitHostPort(request.Host)
	if request.Method != http.MethodConnect || err != nil || port != "443" {
		fmt.Fprint(conn, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
		return
	}
	var far net.Conn
	entered := gateway.run(func() { far, err = net.Dial("tcp", request.Host) })
	if err = errors.Join(entered, err); err != nil {
		fmt.Fprint(conn, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
		return
	}
	defer far.Close()
	fmt.Fprint(conn, "HTTP/1.1 200 Connection established\r\n\r\n")
	go func() {
		_, _ = io.Copy(far, r)
		far.Close()
	}()
	_, _ = io.Copy(conn, far)
}
