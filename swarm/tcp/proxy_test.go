package tcp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	ma "github.com/multiformats/go-multiaddr"

	"pnode/swarm/websocket"
)

// The environment names a proxy for what is not excluded. What cannot be read is told without its value.
func TestFromEnvironment(t *testing.T) {
	for _, name := range []string{"HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy"} {
		t.Setenv(name, "")
	}
	want := func(target, want string) {
		t.Helper()
		via, err := FromEnvironment(target)
		if got := ""; err != nil || via != nil && via.String() != want || via == nil && want != got {
			t.Errorf("proxy for %s: %v, %v, want %q", target, via, err, want)
		}
	}
	want("192.0.2.1:443", "")
	t.Setenv("all_proxy", "socks5://10.0.0.1:1080")
	want("192.0.2.1:443", "socks5://10.0.0.1:1080")
	t.Setenv("HTTPS_PROXY", "http://me:secret@10.0.0.1:3128")
	want("192.0.2.1:443", "http://me:secret@10.0.0.1:3128")
	want("127.0.0.1:443", "")
	t.Setenv("NO_PROXY", "192.0.2.0/24,.example.org")
	want("192.0.2.1:443", "")
	want("a.example.org:443", "")
	want("198.51.100.1:443", "http://me:secret@10.0.0.1:3128")
	t.Setenv("HTTPS_PROXY", "me:secret@proxy.example:3128")
	want("198.51.100.1:443", "http://me:secret@proxy.example:3128")
	for _, wrong := range []string{
		"http://me:secret#1@10.0.0.1:3128", "http://me:secret/1@10.0.0.1:3128", "http://me:secret%@10.0.0.1:3128", "socks4://me:secret@10.0.0.1",
		"http://me:secret@:3128", "http://me:secret@10.0.0.1:0", "http://me:secret@10.0.0.1:70000", "http:/me:secret@10.0.0.1",
	} {
		t.Setenv("HTTPS_PROXY", wrong)
		if via, err := FromEnvironment("198.51.100.1:443"); via != nil || err == nil || strings.Contains(err.Error(), "secret") ||
			!strings.Contains(err.Error(), "HTTPS_PROXY is no URL of a proxy: want http://HOST:PORT") {
			t.Errorf("%s: %v, %v", wrong, via, err)
		}
	}
}

const login = "me:pass@word/1" // %40 and %2F in a URL

// httpProxy connects everything to one target, for those who log in if wanted says so.
func httpProxy(to net.Addr, wanted string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("Authorization", r.Header.Get("Proxy-Authorization"))
		user, password, _ := r.BasicAuth()
		if wanted != "" && user+":"+password != wanted {
			w.Header().Set("Proxy-Authenticate", `Basic realm="office"`)
			w.WriteHeader(http.StatusProxyAuthRequired)
			return
		}
		far, err := net.Dial("tcp", to.String())
		if err != nil || r.Method != http.MethodConnect {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		w.WriteHeader(http.StatusOK)
		near, read, err := http.NewResponseController(w).Hijack()
		if err != nil {
			far.Close()
			return
		}
		forward(near, read.Reader, far)
	}
}

// forward carries what comes from near, as in reads it, to far, and what comes from there back.
func forward(near net.Conn, in *bufio.Reader, far net.Conn) {
	go func() {
		io.Copy(far, in)
		far.Close()
	}()
	io.Copy(near, far)
	near.Close()
}

// socksProxy answers one SOCKS 5 connection (RFC 1928, RFC 1929): reply 0 connects to a target.
func socksProxy(conn net.Conn, to net.Addr, wanted string, reply byte) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	take := func() string { // a length and as many bytes
		n, _ := in.ReadByte()
		b := make([]byte, n)
		io.ReadFull(in, b)
		return string(b)
	}
	if version, _ := in.ReadByte(); version != 5 {
		return
	}
	switch methods := take(); {
	case wanted == "":
		conn.Write([]byte{5, 0})
	case !strings.Contains(methods, "\x02"):
		conn.Write([]byte{5, 0xFF})
		return
	default:
		conn.Write([]byte{5, 2})
		in.Discard(1)
		if user, password := take(), take(); user+":"+password != wanted {
			conn.Write([]byte{1, 1})
			return
		}
		conn.Write([]byte{1, 0})
	}
	in.Discard(4 + 4 + 2) // CONNECT to an IPv4 address
	conn.Write([]byte{5, reply, 0, 1, 0, 0, 0, 0, 0, 0})
	if reply != 0 {
		return
	}
	if far, err := net.Dial("tcp", to.String()); err == nil {
		forward(conn, in, far)
	}
}

// serving listens, has each connection answered, and returns the address.
func serving(t *testing.T, answer func(net.Conn)) net.Addr {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go answer(c)
		}
	}()
	return ln.Addr()
}

// Proxies of each kind carry bytes, and each way in which one fails has a sentence and a remedy, without the password.
func TestProxies(t *testing.T) {
	echo := serving(t, func(c net.Conn) {
		io.Copy(c, c)
		c.Close()
	})
	httpAt := func(h http.HandlerFunc) string {
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		return strings.TrimPrefix(s.URL, "http://")
	}
	socksAt := func(wanted string, reply byte) string {
		return serving(t, func(c net.Conn) { socksProxy(c, echo, wanted, reply) }).String()
	}
	says := func(text string) string {
		return serving(t, func(c net.Conn) {
			io.WriteString(c, text)
			bufio.NewReader(c).ReadString('\n')
			c.Close()
		}).String()
	}
	secure := httptest.NewUnstartedServer(httpProxy(echo, ""))
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // of who does not trust it
	secure.StartTLS()
	t.Cleanup(secure.Close)
	nobody := serving(t, func(net.Conn) {})
	nobody.(*net.TCPAddr).Port = 1
	good, bad := url.PathEscape("me")+":pass%40word%2F1@", "me:secret@"
	plain, locked := httpAt(httpProxy(echo, "")), httpAt(httpProxy(echo, login))
	for name, c := range map[string]struct {
		via    string
		answer Answer
		want   string
	}{
		"http":                    {via: "http://" + plain},
		"http, a login":           {via: "http://" + good + locked},
		"http, no login":          {"http://" + locked, WantsLogin, "the proxy wants a user and a password (it answers 407 Proxy Authentication Required): give them in HTTPS_PROXY: http://USER:PASSWORD@HOST:PORT"},
		"http, a wrong login":     {"http://" + bad + locked, RefusesLogin, "the proxy does not take the user and password that it is given (it answers 407 Proxy Authentication Required): correct them in HTTPS_PROXY; in a password write %40 for @"},
		"http, 401":               {"http://" + bad + says("HTTP/1.0 401 Unauthorized\r\n\r\n"), RefusesLogin, "the proxy does not take the user and password"},
		"http, NTLM":              {"http://" + bad + says("HTTP/1.1 407 Who\r\nProxy-Authenticate: NTLM\r\nProxy-Authenticate: Negotiate\r\n\r\n"), OtherLogin, "the proxy wants a login of a kind that pnode does not have"},
		"http, denied":            {"http://" + says("HTTP/1.1 403 \x1b[31mno\r\n\r\n"), Denies, "the proxy does not connect to 192.0.2.1:443 (it answers 403 [31mno): ask its owner to allow the port"},
		"http, no way":            {"http://" + httpAt(httpProxy(nobody, "")), Cannot, "the proxy gets no connection to 192.0.2.1:443 (it answers 502 Bad Gateway)"},
		"http, another protocol":  {"http://" + says("SSH-2.0-OpenSSH\r\n\r\n"), NoProxy, "what answers is no proxy of this kind: correct HTTPS_PROXY"},
		"http, speaks at once":    {"http://" + says("HTTP/1.1 200 OK\r\n\r\nhello"), NoProxy, "what answers is no proxy"},
		"http, nobody":            {"http://" + bad + nobody.String(), NoAnswer, "nobody listens where the proxy should: correct HTTPS_PROXY, which begins with http://"},
		"http, hangs up":          {"http://" + serving(t, func(c net.Conn) { c.Close() }).String(), NoAnswer, "what answers is no proxy of this kind: it hangs up"},
		"http, of SOCKS":          {"http://" + socksAt("", 0), NoAnswer, "what answers is no proxy of this kind"},
		"https, not trusted":      {"https://" + bad + secure.Listener.Addr().String(), NoAnswer, "this machine does not trust the proxy's certificate: name the proxy in HTTPS_PROXY as its certificate does"},
		"https, of http":          {"https://" + plain, NoAnswer, "the proxy does not speak TLS: write http:// in place of https://"},
		"socks5":                  {via: "socks5://" + socksAt("", 0)},
		"socks5, a login":         {via: "socks5://" + good + socksAt(login, 0)},
		"socks5, no login":        {"socks5://" + socksAt(login, 0), WantsLogin, "the proxy wants a user and a password"},
		"socks5, a wrong login":   {"socks5://" + bad + socksAt(login, 0), RefusesLogin, "the proxy does not take the user and password that it is given"},
		"socks5, denied":          {"socks5://" + socksAt("", 2), Denies, "the proxy does not connect to 192.0.2.1:443 (it answers connection not allowed by ruleset)"},
		"socks5, no way":          {"socks5://" + socksAt("", 5), Cannot, "the proxy gets no connection to 192.0.2.1:443 (it answers connection refused)"},
		"socks5, of http":         {"socks5://" + says("HTTP/1.1 400 Bad Request\r\n\r\n"), NoProxy, "what answers is no proxy of this kind"},
		"socks5, nobody listens":  {"socks5://" + bad + nobody.String(), NoAnswer, "nobody listens where the proxy should"},
		"http, no such name":      {"http://nobody.invalid:3128", NoAnswer, "the way to the proxy has a name that"},
		"socks5h, no such target": {"socks5h://" + socksAt("", 4), Cannot, "(it answers host unreachable)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, _, err := Through(t.Context(), mustURL(t, c.via), "192.0.2.1:443")
			if c.want == "" {
				checkEcho(t, conn, err)
				return
			}
			var failed *ProxyError
			if !errors.As(err, &failed) || failed.Answer != c.answer || !strings.Contains(err.Error(), c.want) ||
				strings.Contains(err.Error(), "secret") || strings.ContainsRune(err.Error(), '\x1b') {
				t.Errorf("%v, want answer %d: ... %s", err, c.answer, c.want)
			}
		})
	}
}

func checkEcho(t *testing.T, conn net.Conn, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprint(conn, "hello")
	b := make([]byte, 5)
	if _, err := io.ReadFull(conn, b); err != nil || string(b) != "hello" {
		t.Errorf("%q came back: %v", b, err)
	}
}

// A dial over a proxy by TLS may be given up as soon as it begins: the race detector sees that nothing is shared.
func TestProxyOverTLSGivenUp(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	via := mustURL(t, "https://"+ln.Addr().String())
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			if c, err := ln.Accept(); err == nil {
				defer c.Close()
			}
			cancel()
		}()
		if _, _, err := Through(ctx, via, "192.0.2.1:443"); err == nil {
			t.Error("a proxy that says nothing is taken")
		}
	}
}

// A web server in front of a node hands its WebSockets on as plain HTTP; one that does not is told apart.
func TestWebServerInFront(t *testing.T) {
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, err := websocket.Accept(w, r); err == nil {
			io.Copy(c, c)
			c.Close()
		}
	}))
	t.Cleanup(node.Close)
	to := mustURL(t, node.URL)
	handsOn := httptest.NewTLSServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }})
	t.Cleanup(handsOn.Close)
	other := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(other.Close)
	p := &Ports{ProxyFor: func(string) (*url.URL, error) { return nil, nil }}
	open := func(s *httptest.Server) (net.Conn, error) {
		at := s.Listener.Addr().(*net.TCPAddr)
		return p.ConnectWeb(t.Context(), ma.StringCast(fmt.Sprintf("/ip4/127.0.0.1/tcp/%d/tls/ws", at.Port)), nil)
	}
	conn, err := open(handsOn)
	checkEcho(t, conn, err)
	var answer *websocket.AnswerError
	if _, err := open(other); !errors.As(err, &answer) || answer.Status != "404 Not Found" {
		t.Errorf("a web server without WebSockets: %v", err)
	}
}

func mustURL(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}
