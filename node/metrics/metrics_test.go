package metrics

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"

	"pnode/node/api"
	"pnode/pipeline/link"
	"pnode/planner/plan"
	"pnode/swarm/traffic"
)

var update = flag.Bool("update", false, "write the golden files and the table in docs/metrics.md anew")

func number(x float64) *float64 { return &x }

// everything is a status in which each metric has a value.
var everything = api.Status{
	Run: "abc", Peer: "p0", State: "training", Generation: 3, Term: 7, Leader: "p0", Step: 550, Steps: 2000, Samples: 8800,
	Loss: number(3.5), HeldOut: number(3.75), HeldOutF32: number(3.7), LearningRate: 0.001, GradientNorm: number(0.5), TokensPerS: 12000, ETAS: 600,
	About: &api.About{Parameters: 1e6, Context: 64, TokensPerStep: 1024, StepMS: 85, PredictedMS: 80},
	Checkpoint: api.Checkpoint{
		Step: 500, Time: time.UnixMilli(1_700_000_000_500), SizeBytes: 12e6, Cadence: &api.Cadence{EveryS: 8, TookS: 0.5, LostS: 0.25}, Saving: &api.Saving{Step: 550}, Copies: &api.Copies{Step: 450},
	},
	Roster: []api.Member{
		{Peer: "p0", Name: "desk", State: "active"},
		{Peer: "p1", Name: "a \"lap\\top\"\n", State: "active", NotUsed: "until noon"},
		{Peer: "p2", State: api.MemberSilent},
		{Peer: "p3", State: "gone"},
	},
	Plan: []api.StageStatus{
		{Peer: "p0", Device: "cpu", ForwardMS: 20, BackwardMS: 40, WaitMS: 10, UpdateMS: 5, Codec: "bf16", FellBack: 2, RelError: 0.001},
		{Stage: 1, Peer: "p1", Device: "cuda:0", ForwardMS: 10, BackwardMS: 20, WaitMS: 40, UpdateMS: 5},
	},
	Seats:   []api.SeatStatus{{Peer: "p0", Device: "cpu", Title: "AMD EPYC", MemoryBytes: 1 << 30, FreeBytes: 2 << 30, StepMS: 85, BusyMS: 65, ExposedMS: 10}},
	Sensors: []api.Sensor{{Device: "cpu", Celsius: number(61.5), Watts: number(45)}, {Device: "cuda:0", Celsius: number(70)}},
	Links:   []api.LinkStatus{{From: "p0", To: "p1", BytesPerS: 1e6, RTTMS: 30, JitterMS: 1}},
	Replicas: []api.ReplicaStatus{
		{Replica: 0, Peer: "p0", Step: 600, Loss: 3.25, Made: 50, Of: 50, TokensPerS: 8000, State: api.ReplicaEnded},
		{Replica: 1, Peer: "p1", Step: 562, Loss: 3.375, Made: 12, Of: 50, TokensPerS: 4000, State: api.ReplicaComputes},
		{Replica: 2, Peer: "p2", Of: 50, State: api.ReplicaLeftOut},
	},
	Outer: &api.OuterStep{
		From: 500, To: 550, Bytes: 1 << 30, SentBytes: 1 << 28, BytesPerToken: 0.41, EveryStepBytesPerToken: 25, ExchangeS: 4.1, WaitedShare: 0.02, HiddenS: 1.5, Drift: number(0.08),
		Replicas: []api.OuterPart{
			{Replica: 0, Steps: 50, Norm: number(0.5), Cosine: number(0.75), RoundS: 200, WaitedS: 6},
			{Replica: 1, Steps: 50, Norm: number(4), Cosine: number(-0.125), RoundS: 200, WaitedS: 4.1, Far: "large"},
			{Replica: 2, Why: "it was silent"},
		},
	},
}

// of returns an exporter of a status.
func of(s api.Status) *Exporter { return logging(s, slog.DiscardHandler) }

func logging(s api.Status, to slog.Handler) *Exporter {
	return New(Source{
		Status: func() api.Status { return s },
		Voters: func() (int, uint64) { return 3, 2 },
		Traffic: func() []link.Traffic {
			return []link.Traffic{{Kind: "chunk", Received: 10}, {Kind: "activation", Sent: 3 << 20, Received: 1 << 20}}
		},
		Control: func() []traffic.Count {
			return []traffic.Count{{Kind: "log", SentBytes: 2000, SentWrites: 40, ReceivedBytes: 900}, {Kind: "gossip"}}
		},
	}, slog.New(to))
}

// scrape returns the answer to a request for the metrics.
func scrape(t *testing.T, h http.Handler) string {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://127.0.0.1/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("a scrape is answered with %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// ours returns the lines of an answer that are about a run: all but the values of this process.
func ours(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.Contains(line, Prefix) {
			b.WriteString(versionLabel.ReplaceAllString(line, `version=""`))
		}
	}
	return b.String()
}

var versionLabel = regexp.MustCompile(`version="[^"]*"`)

// TestScrape compares all that is exported with testdata/metrics.txt.
func TestScrape(t *testing.T) {
	e := of(everything)
	for _, event := range []api.Event{
		{Kind: api.KindPlan},
		{Kind: api.KindStep, Step: 1},
		{Kind: api.KindStep, Step: 2},
		{Kind: api.KindSample},
		{Kind: api.KindInterruption, Interruption: &api.Interruption{Rung: api.RungReplay, Redone: 2, TotalS: 3, DetectS: 0.5, AgreeS: 0.25, ReplayS: 1, SaveS: 0.25, PlanS: 0.25, LoadS: 0.5, StepS: 0.25}},
	} {
		e.Event(event)
	}
	got := ours(scrape(t, e.Handler()))
	const path = "testdata/metrics.txt"
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(path); err != nil || got != string(want) {
		t.Errorf("%s: %v; got\n%s", path, err, got)
	}
	problems, err := promlint.New(strings.NewReader(got)).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("Prometheus' linter: %v, %v", problems, err)
	}
	for _, f := range Families {
		if !strings.Contains(got, "\n# TYPE "+Prefix+f.Name+" "+f.Type()+"\n") && !strings.HasPrefix(got, "# TYPE "+Prefix+f.Name+" ") {
			t.Errorf("%s%s has no value in a status that has all", Prefix, f.Name)
		}
	}
}

// TestUnknownHasNoValue: a node that has just begun exports no loss of 0 and no speed that it does not know.
func TestUnknownHasNoValue(t *testing.T) {
	got := ours(scrape(t, of(api.Status{Loss: number(math.NaN()), State: "joining", Waiting: "no leader", WaitingFor: api.WaitLeader, TokensPerS: 5}).Handler()))
	for _, none := range []string{"loss", "held_out_loss", "learning_rate", "gradient_norm", "step_seconds", "checkpoint_timestamp_seconds", "checkpoint_bytes", "outer_step"} {
		if strings.Contains(got, "\n"+Prefix+none+" ") {
			t.Errorf("%s has a value", none)
		}
	}
	for _, want := range []string{`waiting 1`, `waiting_for{kind="leader"} 1`, `waiting_for{kind="plan"} 0`, `node_state{state="joining"} 1`, "tokens_per_second 0", `interruptions_total{rung="memory"} 0`} {
		if !strings.Contains(got, "\n"+Prefix+want+"\n") {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

// TestSeriesAreBounded: no roster, plan or name makes a scrape long, or spoils it.
func TestSeriesAreBounded(t *testing.T) {
	s := everything
	s.Plan, s.Seats, s.Links, s.Roster, s.Replicas = nil, nil, nil, nil, nil
	long := strings.Repeat("x", 1<<16)
	for i := range 5000 {
		p := plan.PeerID(fmt.Sprintf("peer %d", i))
		s.Roster = append(s.Roster, api.Member{Peer: p, Name: long + string(p), State: long})
		s.Plan = append(s.Plan, api.StageStatus{Replica: plan.Replica(i / 10), Stage: plan.Stage(i % 10), Peer: p, Codec: long})
		s.Seats = append(s.Seats, api.SeatStatus{Peer: p, Device: "\xff\xfe" + long})
		s.Links = append(s.Links, api.LinkStatus{From: p, To: "p0", BytesPerS: 1, RTTMS: 1, JitterMS: 1})
		s.Replicas = append(s.Replicas, api.ReplicaStatus{Replica: plan.Replica(i), Peer: p, Step: 1})
	}
	s.Peer = "peer 4999"
	got := scrape(t, of(s).Handler())
	lines := 0
	for line := range strings.Lines(got) {
		lines++
		if len(line) > 600 {
			t.Fatalf("a line of %d bytes", len(line))
		}
	}
	if lines > 3000 {
		t.Errorf("%d lines", lines)
	}
	if own := `stage_seconds{node="` + long[:maxLabel] + `",part="wait",replica="499",stage="9"}`; !strings.Contains(got, own) {
		t.Errorf("no %s: this node's own stage comes first", own)
	}
}

// TestTable compares the table of docs/metrics.md with what is exported.
func TestTable(t *testing.T) {
	const path, begin, end = "../../docs/metrics.md", "<!-- metrics: written by go test ./node/metrics -update -->\n", "<!-- end -->\n"
	var b strings.Builder
	b.WriteString("| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n")
	for _, f := range Families {
		fmt.Fprintf(&b, "| `%s%s` | %s | %s | %s |\n", Prefix, f.Name, f.Type(), strings.Join(f.Labels, ", "), f.Help)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no place for the table", path)
	}
	want := before + begin + b.String() + end + after
	if *update {
		err = os.WriteFile(path, []byte(want), 0o644) //nolint:gosec // a document of the repository
	} else if want != string(text) {
		err = errors.New("it is not what is exported: go test ./node/metrics -update")
	}
	if err != nil {
		t.Errorf("%s: %v", path, err)
	}
}

// TestListen: at an address of its own the exporter answers whoever asks for the metrics, and no page of a browser.
func TestListen(t *testing.T) {
	e := of(everything)
	var said string
	if err := e.Listen("127.0.0.1:0", func(text string) { said = text }); err != nil {
		t.Fatal(err)
	}
	if want := "metrics: http://" + e.Addr() + "/metrics"; said != want {
		t.Errorf("said %q, want %q", said, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- e.Run(ctx) }()
	for _, c := range []struct {
		method, path, host, origin, site string
		code                             int
	}{
		{"GET", "/metrics", "", "", "", http.StatusOK},
		{"GET", "/metrics", "", "", "none", http.StatusOK},
		{"POST", "/metrics", "", "", "", http.StatusMethodNotAllowed},
		{"GET", "/v1/status", "", "", "", http.StatusNotFound},
		{"GET", "/", "", "", "", http.StatusNotFound},
		{"GET", "/metrics", "rebound.example", "", "", http.StatusForbidden},
		{"GET", "/metrics", "", "http://elsewhere.example", "", http.StatusForbidden},
		{"GET", "/metrics", "", "", "cross-site", http.StatusForbidden},
	} {
		r, err := http.NewRequestWithContext(ctx, c.method, "http://"+e.Addr()+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = c.host
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		if c.site != "" {
			r.Header.Set("Sec-Fetch-Site", c.site)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != c.code || err != nil || strings.Contains(string(body), "pnode_step 550") != (c.code == http.StatusOK) {
			t.Errorf("%s %s of %q from %q, %q: %s, %v, want %d", c.method, c.path, c.host, c.origin, c.site, resp.Status, err, c.code)
		}
	}
	other := of(everything)
	if err := other.Listen(e.Addr(), func(string) {}); err == nil || !strings.Contains(err.Error(), "--metrics") {
		t.Errorf("a taken address: %v", err)
	}
	cancel()
	if err := <-over; err != nil {
		t.Errorf("at the end: %v", err)
	}
}

// TestConnectionsAreBounded: whoever reaches the address takes few files of the process, and scrapes go on once there is room.
func TestConnectionsAreBounded(t *testing.T) {
	e := of(everything)
	if err := e.Listen("127.0.0.1:0", func(string) {}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- e.Run(ctx) }()
	var idle []net.Conn
	for range mostConnections + 1 {
		c, err := net.Dial("tcp", e.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		idle = append(idle, c)
	}
	if n, err := idle[mostConnections].Read(make([]byte, 1)); n > 0 || err == nil {
		t.Errorf("one connection too many gives %d bytes, %v", n, err)
	}
	if _, err := io.WriteString(idle[0], "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(idle[0]); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 200") {
		t.Errorf("a connection of before is answered with %.40q, %v", answer, err)
	}
	for { // until the server has seen that there is room
		resp, err := http.Get("http://" + e.Addr() + Path)
		if err == nil {
			resp.Body.Close()
			break
		}
	}
	cancel()
	if err := <-over; err != nil {
		t.Errorf("at the end: %v", err)
	}
}

// failing is a listener of a process without a file to spare, once.
type failing struct {
	net.Listener
	failed bool // belongs to Accept
}

func (f *failing) Accept() (net.Conn, error) {
	if f.failed {
		return f.Listener.Accept()
	}
	f.failed = true
	return nil, &net.OpError{Op: "accept", Net: "tcp", Err: syscall.EMFILE}
}

// TestServerLogs: what fails while scrapes are served goes to the node's log, and not through its screen.
func TestServerLogs(t *testing.T) {
	lines := make(chan string, 8)
	e := logging(everything, slog.NewTextHandler(writer(func(b []byte) { lines <- string(b) }), &slog.HandlerOptions{Level: slog.LevelDebug}))
	if err := e.Listen("127.0.0.1:0", func(string) {}); err != nil {
		t.Fatal(err)
	}
	e.listener = &failing{Listener: e.listener}
	var raw bytes.Buffer
	log.SetOutput(&raw)
	defer log.SetOutput(os.Stderr)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- e.Run(ctx) }()
	resp, err := http.Get("http://" + e.Addr() + Path) // is accepted after the failure
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	cancel()
	<-over
	close(lines)
	if line := <-lines; !strings.Contains(line, "level=DEBUG") || !strings.Contains(line, "Accept error") || raw.Len() > 0 {
		t.Errorf("logged %q, raw %q", line, raw.String())
	}
}

type writer func([]byte)

func (w writer) Write(b []byte) (int, error) {
	w(b)
	return len(b), nil
}

// TestFamiliesAreDescribed: names are unique, and each event kind and rung that is counted has a series from the start.
func TestFamiliesAreDescribed(t *testing.T) {
	names := map[string]bool{}
	for _, f := range Families {
		if names[f.Name] || f.Help == "" || f.Counter != strings.HasSuffix(f.Name, "_total") {
			t.Errorf("%+v: a name of its own, a help, and _total for counters alone", f)
		}
		names[f.Name] = true
	}
	out := make(chan prometheus.Metric, 4096)
	of(api.Status{}).Collect(out)
	close(out)
	sums := map[string]int{}
	for m := range out {
		var d dto.Metric
		if err := m.Write(&d); err != nil {
			t.Fatal(err)
		}
		for name := range names {
			if strings.Contains(m.Desc().String(), `"`+Prefix+name+`"`) {
				sums[name]++
			}
		}
	}
	if got := slices.Sorted(maps.Keys(sums)); sums["events_total"] != len(eventKinds) || sums["interruption_seconds_total"] != 7*len(rungs) {
		t.Errorf("series at the start: %v of %v", sums, got)
	}
}

// BenchmarkScrape measures an answer, without the status that it is made of.
func BenchmarkScrape(b *testing.B) {
	h := of(everything).Handler()
	for b.Loop() {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "http://127.0.0.1/metrics", nil))
	}
}

// BenchmarkEvent measures what a step pays for its counters.
func BenchmarkEvent(b *testing.B) {
	e := of(everything)
	for b.Loop() {
		e.Event(api.Event{Kind: api.KindStep, Step: 1})
	}
}
