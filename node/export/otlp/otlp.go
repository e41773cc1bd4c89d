// Package otlp sends the spans of some steps to an OpenTelemetry collector, or whatever else takes OTLP over HTTP: Jaeger, Tempo.
//
// The form is the JSON encoding of OTLP 1.x (https://opentelemetry.io/docs/specs/otlp/#otlphttp): POST /v1/traces with IDs in
// hexadecimal digits and 64-bit numbers as texts. A step is one trace. Its ID follows from run, generation and step, so that all
// nodes of the run send spans of the same trace without a word to each other:
//
//	step 300                         sent by the node of worker 0
//	  worker 0                       one span a worker, sent by its node
//	    forward ..., backward ...    one span an action; copies and reductions, which go on beside, too
//
// Clocks of nodes differ: spans of two nodes may seem to overlap by as much.
//
// Exporter.Span only queues, and leaves spans out where the queue is full. One goroutine, Run's, collects the spans of a worker's step,
// sends them once the worker has gone on to another step, and keeps mostWaiting requests for a collector that does not answer.
package otlp

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"pnode/pipeline/trace"
	"pnode/planner/plan"
)

// HeadersEnv has headers for the collector, such as a key: name=value, separated by commas, values with %-escapes.
const HeadersEnv = "OTEL_EXPORTER_OTLP_HEADERS"

const (
	tracesPath = "/v1/traces"
	// mostQueued bounds the spans on their way to Run, mostSpans those that are collected.
	mostQueued = 16 << 10
	mostSpans  = 32 << 10
	// requestSpans is how many go in one request; mostWaiting of these are kept.
	requestSpans = 2000
	mostWaiting  = 32
	// settled is for how long nothing must come of a worker's step until it is sent, where the worker is at a newer one: copies and
	// reductions may end later. abandoned is the same for a worker that has gone no further; an action may take minutes on a slow line.
	settled        = 2 * time.Second
	abandoned      = 10 * time.Minute
	tickEvery      = time.Second
	retryEvery     = 5 * time.Second
	requestTimeout = 10 * time.Second
	closeTime      = 5 * time.Second
	maxAnswer      = 64 << 10
	maxDetail      = 300
)

// Options say what to send where.
type Options struct {
	// URL is the collector's, as in http://127.0.0.1:4318.
	URL string
	// Run is the ID of the run, Node what people call this node.
	Run, Node string
	// Every says which steps are sent: its multiples. Spans of others only tell that a worker has gone on.
	Every plan.Step
	// Warn tells people of what failed.
	Warn func(text string)
}

// Exporter sends spans. Its methods may be called concurrently, Run once.
type Exporter struct {
	options Options
	at      string
	headers http.Header
	http    *http.Client
	spans   chan trace.Span
	lost    atomic.Int64 // spans that found no room

	// What follows belongs to Run.
	steps      map[stepOf]*collected
	held       int               // spans in steps
	newest     map[int]plan.Step // of each worker, in generation
	generation plan.Generation   // the newest
	waiting    [][]byte          // requests
	dropped    int               // requests that found no room
	failed     bool              // the last request
	tried      time.Time
}

// stepOf names a worker's step of a generation.
type stepOf struct {
	generation plan.Generation
	step       plan.Step
	worker     int
}

// collected are the spans of a worker's step.
type collected struct {
	spans []trace.Span
	last  time.Time // when one came
}

// Endpoint returns where spans go at a collector's URL. The error says what is wanted, and nothing of the URL.
func Endpoint(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return "", errors.New("want the URL of an OpenTelemetry collector, as in http://127.0.0.1:4318")
	}
	if u.User != nil { // other users of the machine see the command lines of local nodes
		return "", fmt.Errorf("want it without a name and a password: put these into %s, as in %s=Authorization=Basic%%20BASE64", HeadersEnv, HeadersEnv)
	}
	if path := strings.TrimRight(u.Path, "/"); !strings.HasSuffix(path, tracesPath) {
		u.Path = path + tracesPath
	}
	return u.String(), nil
}

// New returns an exporter. Spans are sent once Run runs.
func New(o Options) (*Exporter, error) {
	at, err := Endpoint(o.URL)
	if err != nil {
		return nil, fmt.Errorf("--otlp: %w", err)
	}
	o.Every = max(o.Every, 1)
	e := &Exporter{
		options: o, at: at, headers: http.Header{}, http: &http.Client{Timeout: requestTimeout, CheckRedirect: stay}, spans: make(chan trace.Span, mostQueued),
		steps: map[stepOf]*collected{}, newest: map[int]plan.Step{},
	}
	for _, pair := range strings.Split(os.Getenv(HeadersEnv), ",") {
		if name, value, ok := strings.Cut(pair, "="); ok {
			if value, err = url.QueryUnescape(strings.ReplaceAll(strings.TrimSpace(value), "+", "%2B")); err != nil {
				return nil, fmt.Errorf("--otlp: %s: want name=value with %%-escapes, separated by commas", HeadersEnv)
			}
			e.headers.Set(strings.TrimSpace(name), value)
		}
	}
	return e, nil
}

// stay follows no redirect: the headers may have keys, which are for this collector alone.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Span takes a span of a step that is to be sent. It never waits.
func (e *Exporter) Span(s trace.Span) {
	select {
	case e.spans <- s:
	default:
		e.lost.Add(1)
	}
}

// Run sends spans until ctx ends, and then for closeTime what is left.
func (e *Exporter) Run(ctx context.Context) {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for open := true; open; {
		select {
		case s := <-e.spans:
			e.collect(s, time.Now())
		case now := <-tick.C:
			e.settle(now)
			if !e.failed || now.Sub(e.tried) >= retryEvery {
				e.send(ctx)
			}
		case <-ctx.Done():
			open = false
		}
	}
	for range len(e.spans) {
		e.collect(<-e.spans, time.Now())
	}
	e.settle(time.Now().Add(abandoned))
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	e.send(last)
	if n := e.lost.Load(); n > 0 {
		e.options.Warn(fmt.Sprintf("--otlp: %d spans are missing: there was no room for them", n))
	}
}

// collect adds a span to those of its worker's step.
func (e *Exporter) collect(s trace.Span, now time.Time) {
	if s.Generation > e.generation {
		e.generation = s.Generation
		clear(e.newest)
	}
	if s.Generation == e.generation {
		e.newest[s.Worker] = max(e.newest[s.Worker], s.Step)
	}
	if s.Step%e.options.Every != 0 {
		return
	}
	if e.held == mostSpans {
		e.lost.Add(1)
		return
	}
	key := stepOf{s.Generation, s.Step, s.Worker}
	c := e.steps[key]
	if c == nil {
		c = &collected{}
		e.steps[key] = c
	}
	c.spans, c.last = append(c.spans, s), now
	e.held++
}

// settle makes requests of the steps of which nothing more will come.
func (e *Exporter) settle(now time.Time) {
	for key, c := range e.steps {
		quiet := abandoned
		if key.generation < e.generation || key.step < e.newest[key.worker] {
			quiet = settled
		}
		if now.Sub(c.last) < quiet {
			continue
		}
		delete(e.steps, key)
		e.held -= len(c.spans)
		for _, request := range e.requests(key, c.spans) {
			if len(e.waiting) == mostWaiting {
				e.dropped++
				continue
			}
			e.waiting = append(e.waiting, request)
		}
	}
}

// send posts what waits, and warns once of each time that it cannot.
func (e *Exporter) send(ctx context.Context) {
	for len(e.waiting) > 0 {
		err := e.post(ctx, e.waiting[0])
		e.tried = time.Now()
		refused := (*refusal)(nil)
		if again := err != nil && (!errors.As(err, &refused) || refused.later()); again {
			if !e.failed {
				e.options.Warn(fmt.Sprintf("--otlp: %v; the run goes on, and spans wait until they can be sent", err))
			}
			e.failed = true
			return
		}
		if err != nil {
			e.options.Warn(fmt.Sprintf("--otlp: spans are missing: %v", err))
		}
		e.waiting, e.failed = slices.Delete(e.waiting, 0, 1), false
	}
	if e.dropped > 0 {
		e.options.Warn(fmt.Sprintf("--otlp: spans of %d requests are missing: there was no room for them", e.dropped))
		e.dropped = 0
	}
}

// refusal is an answer that is no success.
type refusal struct {
	code int
	text string
}

func (r *refusal) Error() string {
	return fmt.Sprintf("the collector answers %d %s", r.code, r.text)
}

// later reports whether the same request may be taken later.
func (r *refusal) later() bool {
	switch r.code {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// post makes one request.
func (e *Exporter) post(ctx context.Context, body []byte) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.at, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header = e.headers.Clone()
	r.Header.Set("Content-Type", "application/json")
	resp, err := e.http.Do(r)
	if err != nil {
		if u := (*url.Error)(nil); errors.As(err, &u) {
			err = u.Err // without the URL, which others say
		}
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the collector's answer: %w", err)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return &refusal{resp.StatusCode, clip(http.StatusText(resp.StatusCode) + ": " + string(text))}
	}
	var answer struct {
		Partial struct {
			Rejected json.Number `json:"rejectedSpans"`
			Message  string      `json:"errorMessage"`
		} `json:"partialSuccess"`
	}
	if json.Unmarshal(text, &answer) == nil && answer.Partial.Message != "" {
		e.options.Warn("--otlp: the collector says: " + clip(answer.Partial.Message))
	}
	return nil
}

// clip returns a text of others on one line of bounded length.
func clip(text string) string {
	return strings.ToValidUTF8(strings.Join(strings.Fields(text[:min(len(text), maxDetail)]), " "), "")
}

// span is a span in OTLP's JSON.
type span struct {
	TraceID    string      `json:"traceId"`
	SpanID     string      `json:"spanId"`
	ParentID   string      `json:"parentSpanId,omitempty"`
	Name       string      `json:"name"`
	Kind       int         `json:"kind"` // 1: internal
	Start      string      `json:"startTimeUnixNano"`
	End        string      `json:"endTimeUnixNano"`
	Attributes []attribute `json:"attributes,omitempty"`
}

type attribute struct {
	Key   string            `json:"key"`
	Value map[string]string `json:"value"`
}

func text(key, value string) attribute {
	return attribute{key, map[string]string{"stringValue": value}}
}

func number(key string, value uint64) attribute {
	return attribute{key, map[string]string{"intValue": strconv.FormatUint(value, 10)}}
}

// identity returns n bytes as hexadecimal digits that follow from texts, the same on all nodes.
func identity(n int, parts ...any) string {
	sum := sha256.Sum256([]byte(fmt.Sprintf("pnode span %#v", parts)))
	return hex.EncodeToString(sum[:n])
}

// requests returns the bodies of what is sent of a worker's step.
func (e *Exporter) requests(key stepOf, spans []trace.Span) (bodies [][]byte) {
	id := identity(16, e.options.Run, uint64(key.generation), uint64(key.step))
	root, own := identity(8, id, "step"), identity(8, id, "worker", key.worker)
	about := []attribute{number("pnode.generation", uint64(key.generation)), number("pnode.step", uint64(key.step))}
	made := func(own, parent, name string, start, end int64, more ...attribute) span {
		return span{id, own, parent, name, 1, strconv.FormatInt(start, 10), strconv.FormatInt(end, 10), append(slices.Clone(about), more...)}
	}
	from, to := spans[0].Start, spans[0].End
	for _, s := range spans {
		from, to = min(from, s.Start), max(to, s.End)
	}
	var all []span
	if key.worker == 0 {
		all = append(all, made(root, "", fmt.Sprintf("step %d", key.step), from, to))
	}
	worker := number("pnode.worker", uint64(key.worker))
	all = append(all, made(own, root, fmt.Sprintf("worker %d", key.worker), from, to, worker))
	for _, s := range spans {
		all = append(all, made(identity(8, own, s.Row, s.Start, s.Name), own, s.Name, s.Start, s.End,
			worker, number("pnode.row", uint64(s.Row)), text("pnode.action", s.Category)))
	}
	resource := map[string]any{"attributes": []attribute{text("service.name", "pnode"), text("service.instance.id", e.options.Node), text("pnode.run", e.options.Run)}}
	for part := range slices.Chunk(all, requestSpans) {
		body, err := json.Marshal(map[string]any{"resourceSpans": []any{map[string]any{
			"resource": resource, "scopeSpans": []any{map[string]any{"scope": map[string]string{"name": "pnode"}, "spans": part}},
		}}})
		if err != nil {
			panic("otlp: texts and numbers do not marshal: " + err.Error())
		}
		bodies = append(bodies, body)
	}
	return bodies
}
