package api

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// opened is the page of a served node as its URL says.
type opened struct {
	t    *testing.T
	page *url.URL
}

func open(t *testing.T, node Node) opened {
	t.Helper()
	dir, _ := serve(t, node, nil)
	page, err := url.Parse(dial(t, dir).Page())
	if err != nil {
		t.Fatal(err)
	}
	return opened{t, page}
}

// ask sends a request as a browser would and gives the answer's code, headers and body.
func (o opened) ask(method, path string, change func(*http.Request)) (*http.Response, string) {
	o.t.Helper()
	req, err := http.NewRequestWithContext(o.t.Context(), method, "http://"+o.page.Host+path, nil)
	if err != nil {
		o.t.Fatal(err)
	}
	if change != nil {
		change(req)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		o.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		o.t.Fatal(err)
	}
	return resp, string(body)
}

// looking carries the page's key.
func (o opened) looking(r *http.Request) { r.Header.Set("Authorization", "Bearer "+o.page.Fragment) }

func TestThePageIsUnderItsPath(t *testing.T) {
	o := open(t, &fakeNode{})
	resp, body := o.ask("GET", o.page.Path, nil)
	if resp.StatusCode != http.StatusOK || !strings.Contains(body, "main.js") || strings.Contains(body, o.page.Fragment) {
		t.Errorf("the page: %s %q", resp.Status, body)
	}
	if policy := resp.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
		t.Errorf("policy %q", policy)
	}
	if resp, _ := o.ask("GET", o.page.Path+"main.js", nil); resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/javascript") {
		t.Errorf("script: %s %v", resp.Status, resp.Header)
	}
	wrong := strings.Repeat("0", len(o.page.Path)-2)
	for _, path := range []string{"/", "/" + wrong + "/", "/" + wrong + "/main.js", strings.TrimSuffix(o.page.Path, "/"), "//", o.page.Path[:5] + "/"} {
		if resp, body := o.ask("GET", path, nil); resp.StatusCode != http.StatusUnauthorized || body != "" {
			t.Errorf("GET %s: %s %q", path, resp.Status, body)
		}
	}
	if resp, _ := o.ask("POST", o.page.Path, nil); resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST to the page: %s", resp.Status)
	}
	for _, path := range []string{"none.js", "../page.go", "files/main.js", "doc.go", ""} {
		if resp, _ := o.ask("GET", o.page.Path+url.PathEscape(path)+"/", nil); resp.StatusCode != http.StatusNotFound {
			t.Errorf("GET %s: %s", path, resp.Status)
		}
	}
}

// TestThePagesKeyOnlyLooks: it opens everything that is asked with GET and nothing else.
func TestThePagesKeyOnlyLooks(t *testing.T) {
	node := &fakeNode{status: Status{Run: "seen"}}
	node.Publish(Event{Kind: KindPlan, Message: "first"})
	node.Close() // ends the stream of events
	o := open(t, node)
	for path, want := range map[string]string{
		"/v1/status": `"run":"seen"`, "/v1/history": `"message":"first"`, "/v1/events": `"first"`,
		"/v1/schedule.svg": "<svg", "/v1/metrics": "pnode_step 0\n", "/metrics": "pnode_step 0\n", "/v1/checkpoints": "checkpoints",
	} {
		if resp, body := o.ask("GET", path, o.looking); resp.StatusCode != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("GET %s: %s %q", path, resp.Status, body)
		}
	}
	told := len(node.told)
	for _, path := range []string{"/v1/leave", "/v1/stop", "/v1/invite", "/v1/status"} {
		for _, method := range []string{"POST", "PUT", "DELETE"} {
			if resp, _ := o.ask(method, path, o.looking); resp.StatusCode != http.StatusForbidden {
				t.Errorf("%s %s: %s", method, path, resp.Status)
			}
		}
	}
	if len(node.told) != told {
		t.Errorf("the node was told %v", node.told[told:])
	}
	resp, _ := o.ask("GET", "/v1/schedule.svg", o.looking)
	if policy := resp.Header.Get("Content-Security-Policy"); resp.Header.Get("Content-Type") != "image/svg+xml" || !strings.Contains(policy, "sandbox") {
		t.Errorf("picture: %v", resp.Header)
	}
}

// TestOtherSitesGetNothing: neither a name that leads to loopback nor a page of another origin,
// even with the key.
func TestOtherSitesGetNothing(t *testing.T) {
	o := open(t, &fakeNode{})
	port := o.page.Port()
	host := func(h string) func(*http.Request) { return func(r *http.Request) { r.Host = h } }
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	for _, tt := range []struct {
		name   string
		change func(*http.Request)
		want   int
	}{
		{"itself", func(*http.Request) {}, http.StatusOK},
		{"localhost", host("localhost:" + port), http.StatusOK},
		{"a tunnel's port", host("127.0.0.1:9999"), http.StatusOK},
		{"without a port", host("localhost"), http.StatusOK},
		{"IPv6", host("[::1]:" + port), http.StatusOK},
		{"a name of someone's", host("evil.example:" + port), http.StatusForbidden},
		{"a name that begins alike", host("127.0.0.1.evil.example:" + port), http.StatusForbidden},
		{"a name with localhost in it", host("localhost.evil.example"), http.StatusForbidden},
		{"another address", host("192.0.2.7:" + port), http.StatusForbidden},
		{"its origin", header("Origin", "http://"+o.page.Host), http.StatusOK},
		{"another port", header("Origin", "http://127.0.0.1:1"), http.StatusForbidden},
		{"another origin", header("Origin", "https://evil.example"), http.StatusForbidden},
		{"a file", header("Origin", "null"), http.StatusForbidden},
		{"no origin", header("Origin", ""), http.StatusForbidden},
		{"fetched by the page", header("Sec-Fetch-Site", "same-origin"), http.StatusOK},
		{"fetched by another page", header("Sec-Fetch-Site", "cross-site"), http.StatusUnauthorized},
		{"fetched by another port", header("Sec-Fetch-Site", "same-site"), http.StatusUnauthorized},
	} {
		resp, body := o.ask("GET", "/v1/status", func(r *http.Request) {
			o.looking(r)
			tt.change(r)
		})
		if resp.StatusCode != tt.want || tt.want != http.StatusOK && body != "" {
			t.Errorf("%s: %s %q, want %d", tt.name, resp.Status, body, tt.want)
		}
		if allow := resp.Header.Get("Access-Control-Allow-Origin"); allow != "" {
			t.Errorf("%s: allows %q", tt.name, allow)
		}
		if tt.want == http.StatusForbidden {
			if resp, _ := o.ask("GET", o.page.Path, tt.change); resp.StatusCode != tt.want {
				t.Errorf("the page for %s: %s", tt.name, resp.Status)
			}
		}
	}
}

func TestEventsAfterASequenceNumber(t *testing.T) {
	node := &fakeNode{}
	for step := 1; step <= 5; step++ {
		node.Publish(stepEvent(step))
	}
	node.Close()
	o := open(t, node)
	_, body := o.ask("GET", "/v1/events?after=3", o.looking)
	if lines := strings.Split(strings.TrimSpace(body), "\n"); len(lines) != 2 || !strings.Contains(lines[0], `"step":4`) {
		t.Errorf("got %q", lines)
	}
	if resp, body := o.ask("GET", "/v1/events?after=x", o.looking); resp.StatusCode != http.StatusBadRequest || !strings.Contains(body, `after is \"x\"`) {
		t.Errorf("%s %q", resp.Status, body)
	}
}

// TestThePageComesBack: the next node of a folder has the page where it was; where the port is
// taken both port and key are new, and so they are where the file is not pnode's.
func TestThePageComesBack(t *testing.T) {
	dir := t.TempDir()
	listen := func() *Server {
		t.Helper()
		s, err := Listen(Options{Dir: dir, Node: &fakeNode{}})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := listen()
	page, token := first.address.Page, first.address.Token
	if err := first.listener.Close(); err != nil {
		t.Fatal(err)
	}
	again := listen()
	if again.address.Page != page || again.address.Token == token {
		t.Errorf("came back as %+v after %s", again.address, page)
	}
	beside := listen() // while the port is taken
	if beside.address.Addr == again.address.Addr || beside.view.Key == again.view.Key {
		t.Errorf("%+v beside %+v", beside.view, again.view)
	}
	for _, s := range []*Server{again, beside} {
		if err := s.listener.Close(); err != nil {
			t.Fatal(err)
		}
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := free.Addr().String()
	free.Close()
	for _, bad := range []string{"{", `{"addr":"0.0.0.0:0","key":"0123456789012345678901234567"}`, fmt.Sprintf(`{"addr":%q,"key":"short"}`, addr)} {
		if err := os.WriteFile(filepath.Join(dir, ViewFile), []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		s := listen()
		if !strings.HasPrefix(s.address.Addr, "127.0.0.1:") || len(s.view.Key) != len(newToken()) {
			t.Errorf("with %s: %+v", bad, s.view)
		}
		if err := s.listener.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
