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
		e.settle(now)
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
		e.settle(now)
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
		e.settle(now)
	}
	if len(e.waiting) != mostWaiting || e.dropped != mostWaiting {
		t.Errorf("%d wait, %d are missing", len(e.waiting), e.dropped)
	}
}

// TestBounds: of a step with too many spans, and of too many steps, the rest is counted.
func TestBounds(t *testing.T) {
	e, _ := exporter(t, "http://127.0.0.1:1", "desk")
	now := time.Now()
	for i := range int64(mostSpans + 10) {
		e.collect(action(0, 1, i, i+1), now)
	}
	for step := range plan.Step(mostSteps + 5) {
		e.collect(action(0, step+2, 1, 2), now)
	}
	if n := e.lost.Load(); n != 10+6 || len(e.steps) != mostSteps {
		t.Errorf("%d are lost of %d steps", n, len(e.steps))
	}
	bodies := e.requests(stepOf{2, 1}, e.steps[stepOf{2, 1}].spans)
	if want := (mostSpans+2)/requestSpans + 1; len(bodies) != want {
		t.Errorf("%d requests, want %d", len(bodies), want)
	}
	for range 2 * mostQueued {
		e.Span(action(0, 1, 1, 2)) // nobody reads
	}
	if n := e.lost.Load(); n != 16+mostQueued {
		t.Errorf("%d are lost", n)
	}
}

// TestRun: a step is sent once nothing has come of it for a while, and at the end at once.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // guards sent
		var sent []int
		e, said := exporter(t, "http://collector.example", "desk")
		e.http.Transport = trip(func(r *http.Request) (*http.Response, error) {
			body, err := io.ReadAll(r.Body)
			mu.Lock()
			defer mu.Unlock()
			sent = append(sent, strings.Count(string(body), "forward 0"))
			return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("{}"))}, err
		})
		requests := func() []int {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(sent)
		}
		ctx, stop := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { e.Run(ctx) })
		e.Span(action(0, 100, 1, 2))
		e.Span(action(0, 100, 2, 3))
		time.Sleep(settled + 2*tickEvery)
		if got := requests(); !slices.Equal(got, []int{2}) {
			t.Errorf("sent %v", got)
		}
		e.Span(action(0, 200, 1, 2))
		synctest.Wait()
		stop()
		run.Wait()
		if got := requests(); !slices.Equal(got, []int{2, 1}) || len(*said) > 0 {
			t.Errorf("sent %v, said %q", got, *said)
		}
	})
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
	} {
		if got, err := Endpoint(given); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v; want %q", given, got, err, want)
		}
	}
}
