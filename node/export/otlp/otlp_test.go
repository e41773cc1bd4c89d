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

// TestCollectorIsDown: one warning; spans wait, in bounds, and come once it is back. What it refuses keeps nothing else back. Each cause is told
// once, however often it comes, and what is missing is counted.
func TestCollectorIsDown(t *testing.T) {
	c := &collector{t: t, answer: []int{503, 503, 401, 401, 503}}
	h := httptest.NewServer(c)
	defer h.Close()
	e, said := exporter(t, h.URL+"/", "desk")
	now := time.Now()
	for step := range plan.Step(5) {
		e.collect(action(0, step+1, 1, 2), now)
		e.settle(now.Add(abandoned))
		e.send(t.Context())
	}
	e.send(t.Context())
	if len(c.spans) != 3*3 || len(e.waiting) != 0 {
		t.Errorf("%d spans came, %d requests wait", len(c.spans), len(e.waiting))
	}
	for step := range plan.Step(2 * mostWaiting) {
		e.collect(action(0, 100+step, 1, 2), now)
		e.settle(now.Add(abandoned))
	}
	if want := (missing{crowded: 3 * mostWaiting, refused: 2 * 3}); len(e.waiting) != mostWaiting || e.missing != want {
		t.Errorf("%d wait; %+v, want %+v", len(e.waiting), e.missing, want)
	}
	h.Close()
	ended, end := context.WithCancel(t.Context())
	end()
	e.Run(ended)
	for i, want := range []string{
		"503 Service Unavailable; the run goes on, and spans wait until they can be sent",
		"spans are missing: the collector answers 401 Unauthorized: give it its key in " + HeadersEnv,
		"those of newer steps are left out, until it takes some",
		"connection refused; the run goes on, and spans wait until they can be sent: start the collector, or correct its address",
		"spans are missing: 96 for which there was no room, 6 that the collector refused, 96 that could not be sent",
	} {
		if len(*said) != 5 || !strings.Contains((*said)[i], want) {
			t.Fatalf("said %q, want %q", *said, want)
		}
	}
}

// TestLateSpansFollow: what comes after a worker's step was sent goes below the same span, which is not sent again.
func TestLateSpansFollow(t *testing.T) {
	c := &collector{t: t}
	h := httptest.NewServer(c)
	defer h.Close()
	e, said := exporter(t, h.URL, "desk")
	now := time.Now()
	for begin := range int64(2) {
		e.collect(action(0, 300, 10*begin, 10*begin+5), now)
		e.settle(now.Add(abandoned))
		e.send(t.Context())
	}
	ids, last := map[string]bool{}, c.spans[len(c.spans)-1]
	for _, s := range c.spans {
		if ids[s.SpanID] || s.TraceID != last.TraceID {
			t.Errorf("%+v is of another trace, or was sent before", s)
		}
		ids[s.SpanID] = true
	}
	if len(c.spans) != 4 || !ids[last.ParentID] || len(*said) > 0 || e.missing != (missing{}) {
		t.Errorf("%+v; said %q, %+v", c.spans, *said, e.missing)
	}
}

// TestRejectedSpansAreCounted: a collector may take a request and some of its spans alone, or say something of one that it takes whole.
func TestRejectedSpansAreCounted(t *testing.T) {
	e, said := exporter(t, "http://collector.example", "desk")
	answers := []string{`{}`, `{"partialSuccess":{"errorMessage":"old form"}}`, `{"partialSuccess":{"rejectedSpans":"2","errorMessage":"too old"}}`, `{"partialSuccess":{"rejectedSpans":"900"}}`}
	e.http.Transport = trip(func(*http.Request) (*http.Response, error) {
		w := httptest.NewRecorder()
		_, err := io.WriteString(w, answers[0])
		answers = answers[1:]
		return w.Result(), err
	})
	for step := range plan.Step(4) {
		e.collect(action(0, step, 1, 2), time.Now())
		e.settle(time.Now().Add(abandoned))
	}
	e.send(t.Context())
	want := []string{"--otlp: the collector takes all, and says: old form", "--otlp: spans are missing: the collector does not take all: its log may say why: too old"}
	if e.missing != (missing{refused: 2 + 3}) || !slices.Equal(*said, want) {
		t.Errorf("%+v, said %q; want %q", e.missing, *said, want)
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
