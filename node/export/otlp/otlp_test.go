package otlp

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pnode/pipeline/trace"
	"pnode/planner/plan"
)

// collector takes what is sent.
type collector struct {
	mu     sync.Mutex // guards what follows
	t      *testing.T
	spans  []span
	nodes  []string
	answer []int // codes of the next answers; 200 after them
	key    string
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	var sent struct {
		ResourceSpans []struct {
			Resource   struct{ Attributes []attribute }
			ScopeSpans []struct{ Spans []span }
		}
	}
	if err != nil || r.URL.Path != tracesPath || r.Header.Get("Content-Type") != "application/json" || json.Unmarshal(body, &sent) != nil {
		c.t.Errorf("%s %s, %v: %.200s", r.Method, r.URL, err, body)
	}
	c.key = r.Header.Get("Api-Key")
	if len(c.answer) > 0 {
		code := c.answer[0]
		c.answer = c.answer[1:]
		w.WriteHeader(code)
		return
	}
	for _, resource := range sent.ResourceSpans {
		for _, a := range resource.Resource.Attributes {
			if a.Key == "service.instance.id" {
				c.nodes = append(c.nodes, a.Value["stringValue"])
			}
		}
		for _, s := range resource.ScopeSpans {
			if len(s.Spans) > requestSpans {
				c.t.Errorf("%d spans at once", len(s.Spans))
			}
			c.spans = append(c.spans, s.Spans...)
		}
	}
}

// exporter returns one with what it warns of.
func exporter(t *testing.T, url, node string) (*Exporter, *[]string) {
	t.Helper()
	var said []string
	e, err := New(Options{URL: url, Run: "run", Node: node, Warn: func(text string) { said = append(said, text) }})
	if err != nil {
		t.Fatal(err)
	}
	return e, &said
}

func action(worker int, step plan.Step, begin, end int64) trace.Span {
	return trace.Span{Name: "forward 0", Category: "forward", Worker: worker, Generation: 2, Step: step, Start: begin, End: end, Segments: 1}
}

var hexadecimal = regexp.MustCompile(`^[0-9a-f]+$`)

// TestNodesShareATrace: spans of two nodes are of one trace, below one span of the step, though the nodes have not said a word to each other.
func TestNodesShareATrace(t *testing.T) {
	t.Setenv(HeadersEnv, "api-key=se%20same")
	c := &collector{t: t}
	h := httptest.NewServer(c)
	defer h.Close()
	for worker, node := range []string{"desk", "laptop"} {
		e, said := exporter(t, h.URL, node)
		now := time.Now()
		for i := range int64(3) {
			e.collect(action(worker, 300, 100+10*i, 105+10*i), now)
		}
		e.settle(now.Add(abandoned))
		e.send(t.Context())
		if len(*said) > 0 {
			t.Errorf("said %q", *said)
		}
	}
	ids, parents := map[string]bool{}, map[string]int{}
	var root span
	for _, s := range c.spans {
		if s.TraceID != c.spans[0].TraceID || len(s.TraceID) != 32 || len(s.SpanID) != 16 || !hexadecimal.MatchString(s.TraceID+s.SpanID) || ids[s.SpanID] {
			t.Errorf("IDs of %+v", s)
		}
		ids[s.SpanID] = true
		parents[s.ParentID]++
		if s.ParentID == "" {
			root = s
		}
	}
	if len(c.spans) != 9 || root.Name != "step 300" || root.Start != "100" || root.End != "125" || parents[""] != 1 || parents[root.SpanID] != 2 || len(parents) != 4 {
		t.Errorf("%+v, by parent %v", c.spans, parents)
	}
	if !slices.Equal(c.nodes, []string{"desk", "laptop"}) || c.key != "se same" {
		t.Errorf("from %q with key %q", c.nodes, c.key)
	}
}

// TestCollectorIsDown: one warning; spans wait, in bounds, and come once it is back. What it refuses keeps nothing else back.
func TestCollectorIsDown(t *testing.T) {
	c := &collector{t: t, answer: []int{503, 503, 400}}
	h := httptest.NewServer(c)
	defer h.Close()
	e, said := exporter(t, h.URL+"/", "desk")
	now := time.Now()
	for step := range plan.Step(3) {
		e.collect(action(0, step+1, 1, 2), now)
		e.settle(now.Add(abandoned))
		e.send(t.Context())
	}
	if len(c.spans) != 2*3 || len(e.waiting) != 0 {
		t.Errorf("%d spans came, %d requests wait", len(c.spans), len(e.waiting))
	}
	if len(*said) != 2 || !strings.Contains((*said)[0], "503") || !strings.Contains((*said)[1], "spans are missing: the collector answers 400") {
		t.Errorf("said %q", *said)
	}
	for step := range plan.Step(2 * mostWaiting) {
		e.collect(action(0, step, 1, 2), now)
		e.settle(now.Add(abandoned))
	}
	if len(e.waiting) != mostWaiting || e.dropped != mostWaiting {
		t.Errorf("%d wait, %d are missing", len(e.waiting), e.dropped)
	}
}

// TestBounds: what is collected, and what is on its way, has a bound. The rest is counted.
func TestBounds(t *testing.T) {
	e, _ := exporter(t, "http://127.0.0.1:1", "desk")
	now := time.Now()
	for i := range int64(mostSpans - 2) {
		e.collect(action(0, 1, i, i+1), now)
	}
	for step := range plan.Step(12) {
		e.collect(action(0, step+2, 1, 2), now)
	}
	if n := e.lost.Load(); n != 10 || len(e.steps) != 3 || e.held != mostSpans {
		t.Errorf("%d are lost, %d are held of %d steps", n, e.held, len(e.steps))
	}
	e.settle(now.Add(abandoned))
	if want := mostSpans/requestSpans + 1 + 2; len(e.waiting) != want || e.held != 0 {
		t.Errorf("%d requests, want %d; %d spans are held", len(e.waiting), want, e.held)
	}
	for range 2 * mostQueued {
		e.Span(action(0, 1, 1, 2)) // nobody reads
	}
	if n := e.lost.Load(); n != 10+mostQueued {
		t.Errorf("%d are lost", n)
	}
}

// TestRun: a worker's step is sent as one, however long its actions take, once the worker is at the next step; and at the end at once.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // guards sent
		var sent []int
		c := &collector{t: t}
		e, said := exporter(t, "http://collector.example", "desk")
		e.options.Every = 100
		e.http.Transport = trip(func(r *http.Request) (*http.Response, error) {
			w := httptest.NewRecorder()
			c.ServeHTTP(w, r)
			mu.Lock()
			defer mu.Unlock()
			sent = append(sent, len(c.spans))
			return w.Result(), nil
		})
		requests := func(want ...int) {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(sent, want) {
				t.Errorf("sent %v, want %v", sent, want)
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { e.Run(ctx) })
		for i := range int64(3) { // over a slow line
			e.Span(action(0, 100, 60*i, 60*i+60))
			e.Span(action(1, 100, 60*i, 60*i+60))
			time.Sleep(time.Minute)
		}
		requests()
		e.Span(action(0, 101, 180, 240)) // worker 1 is not that far
		time.Sleep(settled + 2*tickEvery)
		requests(5)
		e.Span(action(1, 100, 180, 240))
		e.Span(action(1, 101, 240, 241))
		time.Sleep(settled + 2*tickEvery)
		requests(5, 10)
		e.Span(action(1, 200, 1, 2))
		again := action(0, 101, 1, 2)
		again.Generation++ // of another plan
		e.Span(again)
		time.Sleep(settled + 2*tickEvery)
		requests(5, 10, 12)
		e.Span(action(0, 300, 1, 2))
		synctest.Wait()
		stop()
		run.Wait()
		requests(5, 10, 12, 15)
		ids := map[string]bool{}
		for _, s := range c.spans {
			if ids[s.SpanID] {
				t.Errorf("%+v has the ID of another", s)
			}
			ids[s.SpanID] = true
		}
		if len(*said) > 0 {
			t.Errorf("said %q", *said)
		}
	})
}

// TestStoppedWorker: a step that a worker never ends is sent after a while.
func TestStoppedWorker(t *testing.T) {
	e, _ := exporter(t, "http://127.0.0.1:1", "desk")
	now := time.Now()
	e.collect(action(0, 1, 1, 2), now)
	if e.settle(now.Add(abandoned - 1)); len(e.waiting) != 0 {
		t.Error("it is sent too early")
	}
	if e.settle(now.Add(abandoned)); len(e.waiting) != 1 {
		t.Error("it is not sent")
	}
}

// TestRedirectsAreNotFollowed: keys in headers are for the collector that the user names.
func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Setenv(HeadersEnv, "api-key=sesame")
	other := &collector{t: t}
	elsewhere := httptest.NewServer(other)
	defer elsewhere.Close()
	h := httptest.NewServer(http.RedirectHandler(elsewhere.URL+tracesPath, http.StatusTemporaryRedirect))
	defer h.Close()
	e, said := exporter(t, h.URL, "desk")
	now := time.Now()
	e.collect(action(0, 1, 1, 2), now)
	e.settle(now.Add(abandoned))
	e.send(t.Context())
	if other.key != "" || len(other.spans) > 0 {
		t.Errorf("another host got %d spans and the key %q", len(other.spans), other.key)
	}
	if len(*said) != 1 || !strings.Contains((*said)[0], "the collector answers 307 Temporary Redirect") {
		t.Errorf("said %q", *said)
	}
}

type trip func(*http.Request) (*http.Response, error)

func (t trip) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// TestEndpoint: a collector's URL may have the path or not.
func TestEndpoint(t *testing.T) {
	for given, want := range map[string]string{
		"http://127.0.0.1:4318":              "http://127.0.0.1:4318/v1/traces",
		"https://tempo.example/otlp/":        "https://tempo.example/otlp/v1/traces",
		"http://127.0.0.1:4318/v1/traces":    "http://127.0.0.1:4318/v1/traces",
		"127.0.0.1:4318":                     "",
		"grpc://127.0.0.1:4317":              "",
		"http://127.0.0.1:4318/?key=sesame1": "",
		"http://ada:sesame1@127.0.0.1:4318":  "",
	} {
		if got, err := Endpoint(given); got != want || (err == nil) != (want != "") || err != nil && strings.Contains(err.Error(), "sesame1") {
			t.Errorf("%s: %q, %v; want %q", given, got, err, want)
		}
	}
}
