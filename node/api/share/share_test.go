package share

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pnode/node/api"
)

// machines is a text with a folder, files and addresses of machines, and what is none.
const machines = "cannot go on with --dir " + folder + ": open /home/ada/data/x.bin: no such file, nor C:\\ada\\data, ~/ada; read udp 192.0.2.7:4001->192.0.2.8:9: i/o timeout; " +
	"dial [2001:db8::7]:4001, 2001:db8::8, home-of-ada.example:4001, /ip4/192.0.2.9/udp/4001, https://192.0.2.3/x. 12.5 tokens/s on opencl:0 at 07:43:05, // not 535.104.05.01"

// fill sets each text of a value, whatever fields it has, to machines.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(machines)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key)
		fill(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i))
			}
		}
	}
}

// fakeNode tells all that a node can, with words in it that others are not to see.
type fakeNode struct {
	asked atomic.Int64 // how often for its status
	fails error
}

const folder = "/home/ada/run7"

func (n *fakeNode) Status(context.Context) (api.Status, error) {
	n.asked.Add(1)
	var st api.Status
	fill(reflect.ValueOf(&st).Elem())
	st.Run = "seen"
	return st, n.fails
}

func (n *fakeNode) History(context.Context) (api.History, error) {
	return api.History{Seq: 7, Happened: []api.Happened{
		{Event: api.Event{Seq: 5, Kind: api.KindModel, Message: "in " + folder}},
		{Event: api.Event{Seq: 6, Kind: api.KindError, Message: "open /home/ada/data"}},
		{Event: api.Event{Seq: 7, Kind: api.KindDone, Message: "go on with --dir " + folder}},
	}}, n.fails
}

func (n *fakeNode) Profiles(context.Context) (api.Profiles, error) {
	var p api.Profiles
	fill(reflect.ValueOf(&p).Elem())
	p.Devices[0].Node = "desk"
	return p, n.fails
}

func (n *fakeNode) Schedule(context.Context) ([]byte, error) { return []byte("<svg/>"), n.fails }

func (n *fakeNode) Events(ctx context.Context, after uint64) iter.Seq2[api.Event, error] {
	return func(yield func(api.Event, error) bool) {
		for i, kind := range []api.Kind{api.KindError, api.KindModel, api.KindPlan} {
			if !yield(api.Event{Seq: after + uint64(i) + 1, Kind: kind, Message: string(kind) + " in " + folder}, nil) {
				return
			}
		}
		<-ctx.Done()
		yield(api.Event{}, ctx.Err())
	}
}

// served is a shared page and a browser of it.
type served struct {
	t      *testing.T
	server *Server
	link   *url.URL
	client *http.Client
	log    *strings.Builder
}

// serve shares a node on loopback until the test ends.
func serve(t *testing.T, node Node, unencrypted bool) served {
	t.Helper()
	log := new(strings.Builder)
	s, err := Listen(Options{
		Node: node, Dir: folder, At: netip.MustParseAddrPort("127.0.0.1:0"), Unencrypted: unencrypted,
		Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- s.Run(ctx) }()
	link, err := url.Parse(s.Link())
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // the test looks at the fingerprint
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		cancel()
		if err := <-over; err != nil {
			t.Error(err)
		}
		if strings.Contains(log.String(), s.key) || strings.Contains(log.String(), link.Path) {
			t.Errorf("the log has the secret:\n%s", log)
		}
	})
	return served{t, s, link, &http.Client{Transport: transport}, log}
}

// ask sends a request and returns the answer and its body.
func (s served) ask(method, path string, change func(*http.Request)) (*http.Response, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.link.Scheme+"://"+s.link.Host+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if change != nil {
		change(req)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp, string(body)
}

// knowing carries the key.
func (s served) knowing(r *http.Request) {
	r.Header.Set("Authorization", "Bearer "+s.link.Fragment)
}

// rested forgets what the test has asked for until here.
func (s served) rested() {
	s.server.budget.mu.Lock()
	defer s.server.budget.mu.Unlock()
	clear(s.server.budget.left)
}

// TestTheLinkShowsThePage over TLS, with the certificate whose fingerprint is told, and without TLS where that is asked for.
func TestTheLinkShowsThePage(t *testing.T) {
	for _, unencrypted := range []bool{false, true} {
		s := serve(t, &fakeNode{}, unencrypted)
		resp, body := s.ask("GET", s.link.Path, nil)
		if resp.StatusCode != http.StatusOK || !strings.Contains(body, "main.js") || strings.Contains(body, s.link.Fragment) {
			t.Errorf("the page: %s %q", resp.Status, body)
		}
		if policy := resp.Header.Get("Referrer-Policy"); policy != "no-referrer" {
			t.Errorf("referrer policy %q", policy)
		}
		switch {
		case (resp.TLS == nil) != unencrypted:
			t.Errorf("TLS: %v", resp.TLS)
		case unencrypted && s.server.Fingerprint() != "":
			t.Error("a fingerprint of no certificate")
		case !unencrypted && (fingerprint(resp.TLS.PeerCertificates[0].Raw) != s.server.Fingerprint() || len(s.server.Fingerprint()) != 32*3-1):
			t.Errorf("fingerprint %s", s.server.Fingerprint())
		case !unencrypted && resp.TLS.PeerCertificates[0].VerifyHostname("127.0.0.1") != nil:
			t.Error("a certificate of another address")
		}
		for path, want := range map[string]string{
			"/v1/status?brief": `"run":"seen"`, "/v1/history": `"seq":7`, "/v1/profiles?brief": `"node":"desk"`, "/v1/schedule.svg": "<svg/>",
		} {
			if resp, body := s.ask("GET", path, s.knowing); resp.StatusCode != http.StatusOK || !strings.Contains(body, want) {
				t.Errorf("%s: %s %q", path, resp.Status, body)
			}
		}
	}
}

// TestOthersSeeNoAddressesAndFolders in any answer, nor errors of this machine.
func TestOthersSeeNoAddressesAndFolders(t *testing.T) {
	node := &fakeNode{}
	s := serve(t, node, true)
	all := ""
	for _, path := range []string{"/v1/status", "/v1/history", "/v1/profiles", "/v1/schedule.svg"} {
		_, body := s.ask("GET", path, s.knowing)
		all += body
	}
	req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+s.link.Host+"/v1/events?after=7", nil)
	if err != nil {
		t.Fatal(err)
	}
	s.knowing(req)
	resp, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	var e api.Event
	if err := json.Unmarshal([]byte(line), &e); err != nil || e.Kind != api.KindPlan || e.Seq != 10 || e.Message != "plan in FOLDER" {
		t.Errorf("event %+v, %v", e, err)
	}
	for _, word := range []string{"192.0.2", "2001:db8", "ada"} {
		if strings.Contains(all+line, word) {
			t.Errorf("%q is in\n%s%s", word, all, line)
		}
	}
	if !strings.Contains(all, "go on with --dir FOLDER") {
		t.Errorf("the end is not in\n%s", all)
	}
	const seen = `cannot go on with --dir FOLDER: open FILE: no such file, nor FILE; read udp ADDRESS->ADDRESS: i/o timeout; ` +
		`dial ADDRESS, ADDRESS, ADDRESS, ADDRESS, ADDRESS. 12.5 tokens/s on opencl:0 at 07:43:05, // not 535.104.05.01`
	var st api.Status
	if _, body := s.ask("GET", "/v1/status", s.knowing); json.Unmarshal([]byte(body), &st) != nil || st.Waiting != seen || st.Roster[0].NotUsed != seen {
		t.Errorf("%+v, want texts to be %q", st, seen)
	}
}

// TestTakenOutOfTexts: addresses and paths in whatever form errors and lists have them, with more rather than less; not what only looks like them.
func TestTakenOutOfTexts(t *testing.T) {
	for text, want := range map[string]string{
		"  * [/ip4/192.0.2.9/udp/4001/quic-v1] timeout":              "  * [ADDRESS] timeout",
		"[192.0.2.7:4001 192.0.2.8:4001]":                            "[ADDRESS ADDRESS]",
		"{192.0.2.7/24} addr:192.0.2.7:4001|ada@192.0.2.7.":          "{ADDRESS} ADDRESS|ADDRESS.",
		"dial addr:2001:db8::7, ([2001:db8::7]:4001): fe80::1%eth0":  "dial ADDRESS, (ADDRESS): ADDRESS",
		"2001:db8:1:2:3:4:5:6 or ::1 or 2001:db8::":                  "ADDRESS or ADDRESS or ADDRESS::",
		"at ada.example.:80, via:bücher.example:443":                 "at ADDRESS, ADDRESS",
		"to:/dns4/ada.example/tcp/1 (see https://ada.example/x(y)).": "to:ADDRESS (see ADDRESS)).",
		"[/home/ada/x /b]":                       "[FILE]",
		"path:/home/ada/x":                       "path:FILE",
		"{/home/ada/x}, \"~ada/x\", ../../ada/x": "{FILE}, \"FILE\", FILE",
		"open /home/ada/Documents/secret plan, 2/x.bin: no file; go": "open FILE: no file; go",
		`open C:\Users\Ada Smith\x: no file`:                         "open FILE: no file",
		`"\\server\ada\x y" is no file`:                              `"FILE" is no file`,
		"/home/ada/my (copy)/http://x y: no file":                    "FILE)FILE: no file",
		"/home/ada/it's a/x: no file":                                "FILE: no file",
		folder + "2/x: no file":                                      "FILE: no file",
		"in " + folder + ". In " + folder + "/store/x, " + folder:    "in FOLDER. In FOLDER/store/x, FOLDER",
		"stage 1.5:3, 12.5:1 of opencl:0, [0:3] at 07:43:05":         "",
		"12.5 tokens/s, 3/4, and/or, std::vector // not /* and */ x": "",
		"Qwen2.5:7b 1.5B:3 v0.12.1 535.104.05.01 1.2.3.4.5 0-2":      "",
	} {
		if want == "" {
			want = text
		}
		if got := shownOf(folder).text(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestTextsAnywhereAreCleaned, in whatever kinds of fields are to come.
func TestTextsAnywhereAreCleaned(t *testing.T) {
	type field struct {
		Any  any
		Some [2]string
	}
	got := cleaned(shown{}, field{[]string{"/home/ada"}, [2]string{"", "/home/ada"}})
	if want := (field{[]string{"FILE"}, [2]string{"", "FILE"}}); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestNothingIsChangedOrListed, whoever knows the key; and without it, or with another, nothing is told.
func TestNothingIsChangedOrListed(t *testing.T) {
	node := &fakeNode{}
	s := serve(t, node, true)
	expect := func(method, path string, want int, change func(*http.Request)) {
		t.Helper()
		s.rested()
		if resp, body := s.ask(method, path, change); resp.StatusCode != want || body != "" {
			t.Errorf("%s %s: %s %q, want %d", method, path, resp.Status, body, want)
		}
	}
	for _, path := range []string{"/v1/invites", "/v1/newcomers", "/v1/checkpoints", "/v1/metrics", "/v1/admission", "/v1/", "/v1/status/", "/v1/events", "/v1/events?after=x"} {
		expect("GET", path, http.StatusNotFound, s.knowing)
	}
	expect("GET", "/metrics", http.StatusNotFound, s.knowing)
	for _, path := range []string{"/v1/status", "/v1/invite", "/v1/admit", "/v1/revoke", "/v1/leave", "/v1/stop", "/v1/recover", "/v1/keep", "/v1/model", "/v1/chunk", "/v1/events?after=0"} {
		for _, method := range []string{"POST", "PUT", "DELETE", "PATCH"} {
			expect(method, path, http.StatusForbidden, s.knowing)
		}
	}
	asked := node.asked.Load()
	with := func(header string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", header) }
	}
	key := s.link.Fragment
	for _, header := range []string{"", "Bearer ", "Bearer wrong", "Basic " + key, key, "Bearer " + key + "x", "Bearer " + key[1:]} {
		for _, path := range []string{"/v1/status", "/v1/history", "/v1/events?after=0", "/v1/none"} {
			expect("GET", path, http.StatusForbidden, with(header))
		}
	}
	for _, path := range []string{"/", "/index.html", "/main.js", strings.TrimSuffix(s.link.Path, "/"), "/" + strings.Repeat("0", 24) + "/", s.link.Path[:9] + "/main.js", "/favicon.ico"} {
		expect("GET", path, http.StatusNotFound, nil)
	}
	for _, method := range []string{"HEAD", "POST", "OPTIONS"} {
		expect(method, s.link.Path, http.StatusForbidden, nil)
	}
	for name, change := range map[string]func(*http.Request){
		"a name that leads here":      func(r *http.Request) { r.Host = "evil.example:" + s.link.Port() },
		"another address":             func(r *http.Request) { r.Host = "192.0.2.1" },
		"a page of another site":      func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") },
		"no origin":                   func(r *http.Request) { r.Header.Set("Origin", "null") },
		"asked for by another site":   func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
		"asked for by a page near it": func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") },
	} {
		t.Log(name)
		expect("GET", "/v1/status", http.StatusForbidden, func(r *http.Request) {
			s.knowing(r)
			change(r)
		})
	}
	if node.asked.Load() != asked {
		t.Error("the node was asked for somebody without the key")
	}
}

// TestGuessesAreRationed: who is wrong has a few tries, and then nothing for a while, not even the page.
func TestGuessesAreRationed(t *testing.T) {
	s := serve(t, &fakeNode{}, true)
	begin, passed := time.Now(), atomic.Int64{}
	s.server.budget.now = func() time.Time { return begin.Add(time.Duration(passed.Load())) }
	for try := range 20 {
		want := http.StatusNotFound
		if try >= burst/(1+wrongCosts)+1 {
			want = http.StatusTooManyRequests
		}
		if resp, _ := s.ask("GET", fmt.Sprintf("/%d/", try), nil); resp.StatusCode != want {
			t.Errorf("guess %d: %s, want %d", try, resp.Status, want)
		}
	}
	if resp, body := s.ask("GET", "/v1/status", s.knowing); resp.StatusCode != http.StatusTooManyRequests || body != "" {
		t.Errorf("%s %q", resp.Status, body)
	}
	passed.Store(int64(3 * time.Second)) // what is owed is paid
	if resp, _ := s.ask("GET", "/v1/status", s.knowing); resp.StatusCode != http.StatusOK {
		t.Errorf("after a while: %s", resp.Status)
	}
}

// TestBudget: allowances come back, others have their own, and who comes after many shares one.
func TestBudget(t *testing.T) {
	now := time.Unix(1e9, 0)
	b := newBudget(func() time.Time { return now })
	addr := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}) }
	guesses := func(from netip.Addr) (n int) {
		for ; n < 1000 && b.spend(from, wrongCosts); n++ {
			continue
		}
		return n
	}
	if n := guesses(addr(1)); n != burst/wrongCosts {
		t.Errorf("%d guesses at once", n)
	}
	if n := guesses(addr(2)); n != burst/wrongCosts {
		t.Errorf("%d guesses of another", n)
	}
	now = now.Add(time.Hour)
	if n := guesses(addr(1)); n != burst/wrongCosts {
		t.Errorf("%d guesses an hour later", n)
	}
	for range 100 {
		b.spend(addr(1), wrongCosts)
	}
	now = now.Add(40 * time.Second) // a whole burst is owed: 20 s, and what one more guess costs
	if n := guesses(addr(1)); n == 0 || n > burst/wrongCosts {
		t.Errorf("%d guesses after what is owed is paid", n)
	}
	for i := range 3 * maxAddresses {
		b.spend(addr(i), 1)
	}
	if len(b.left) > maxAddresses+1 {
		t.Errorf("%d addresses are remembered", len(b.left))
	}
	now = now.Add(time.Hour)
	if !b.spend(netip.MustParseAddr("fd00::1"), 1) || len(b.left) > 2 {
		t.Errorf("%d addresses an hour later", len(b.left))
	}
	a, c := subnet(netip.MustParseAddr("fd00::1")), subnet(netip.MustParseAddr("fd00::ffff:2"))
	if a != c || a == subnet(netip.MustParseAddr("fd00:0:0:1::1")) {
		t.Error("a machine of IPv6 has more than one allowance")
	}
}

// TestTheNodeIsAskedOnceASecond, however many look, and what it cannot answer is not told.
func TestTheNodeIsAskedOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, wait := 0, make(chan struct{})
		m := &memo{ask: func(context.Context) answer {
			asked++
			<-wait
			return answer{code: 200 + asked}
		}}
		got := make(chan answer, 10)
		for range 10 {
			go func() { got <- m.get(t.Context()) }()
		}
		close(wait)
		for range 10 {
			if a := <-got; a.code != 201 {
				t.Errorf("answer %d", a.code)
			}
		}
		time.Sleep(freshFor)
		if a := m.get(t.Context()); a.code != 202 || asked != 2 {
			t.Errorf("answer %d after %d questions", a.code, asked)
		}
	})
	for err, want := range map[error]int{fmt.Errorf("no picture: %w", api.ErrNotReady): http.StatusServiceUnavailable, errors.New("in " + folder): http.StatusBadGateway} {
		s := serve(t, &fakeNode{fails: err}, true)
		for path := range s.server.answers {
			if resp, body := s.ask("GET", path, s.knowing); resp.StatusCode != want || body != "" {
				t.Errorf("%s: %s %q, want %d", path, resp.Status, body, want)
			}
		}
	}
}

// TestStreamsAndConnectionsAreBounded, and those of one address.
func TestStreamsAndConnectionsAreBounded(t *testing.T) {
	s := serve(t, &fakeNode{}, true)
	for range maxStreams {
		s.server.streams <- struct{}{}
	}
	if resp, body := s.ask("GET", "/v1/events?after=0", s.knowing); resp.StatusCode != http.StatusServiceUnavailable || body != "" {
		t.Errorf("%s %q", resp.Status, body)
	}
	for range maxStreams {
		<-s.server.streams
	}
	p := newPlaces(nil)
	one, other := subnet(netip.MustParseAddr("10.0.0.1")), subnet(netip.MustParseAddr("10.0.0.2"))
	for range maxOfOne {
		if !p.take(one) {
			t.Fatal("no place for a connection")
		}
	}
	if p.take(one) || !p.take(other) {
		t.Error("connections of one address keep others out")
	}
	p.give(one)
	if !p.take(one) {
		t.Error("a place does not come back")
	}
	for i := range 2 * maxConnections {
		p.take(subnet(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})))
	}
	if p.all != maxConnections {
		t.Errorf("%d connections", p.all)
	}
}

// TestWhereToShare: at an address of a local network, and nowhere else.
func TestWhereToShare(t *testing.T) {
	lan := []netip.Addr{netip.MustParseAddr("192.168.1.7"), netip.MustParseAddr("10.0.0.7")}
	for text, want := range map[string]string{
		"": "192.168.1.7:0", "10.0.0.7": "10.0.0.7:0", "10.0.0.7:8443": "10.0.0.7:8443", "[fd00::1]:1": "[fd00::1]:1", "fd00::1": "[fd00::1]:0", "127.0.0.1:0": "127.0.0.1:0", "::ffff:10.0.0.7": "10.0.0.7:0",
	} {
		if at, err := address(text, lan); err != nil || at.String() != want {
			t.Errorf("%q: %s %v, want %s", text, at, err, want)
		}
	}
	for text, says := range map[string]string{
		"0.0.0.0:1": "as 192.168.1.7", ":1": "want IP or IP:PORT", "desk:1": "want IP or IP:PORT", "203.0.113.5": "of no local network", "[fe80::1%eth0]:1": "of no local network", "10.0.0.7:70000": "want IP or IP:PORT",
	} {
		if _, err := address(text, lan); !errors.Is(err, ErrAddress) || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := address("", nil); !errors.Is(err, ErrNoAddress) || !strings.Contains(err.Error(), "--listen IP") {
		t.Error(err)
	}
	if _, err := Listen(Options{At: netip.MustParseAddrPort("192.0.2.77:0")}); err == nil || !strings.Contains(err.Error(), "--listen IP:PORT") {
		t.Error(err)
	}
	for at, want := range map[string]string{"10.0.0.7:443": "https://10.0.0.7", "[fd00::1]:443": "https://[fd00::1]", "10.0.0.7:80": "https://10.0.0.7:80", "10.0.0.7:4443": "https://10.0.0.7:4443"} {
		if got := (&Server{at: netip.MustParseAddrPort(at)}).origin(); got != want {
			t.Errorf("%s: %s, want %s", at, got, want)
		}
	}
}
