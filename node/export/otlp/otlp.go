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
// sends them once the worker has gone on to another step, and keeps mostWaiting requests for a collector that does not answer. Spans that
// come later still follow, in the same trace. Each cause of missing spans is told once, with what to do, and how many are missing at the end.
package otlp

import (
	"context"
	"errors"
	"fmt"
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
	// mostSent is how many workers' steps are known to be sent.
	mostSent = 1024
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
	// Warn tells people of what failed. Run calls it.
	Warn func(text string)
}

// Exporter sends spans. Its methods may be called concurrently, Run once.
type Exporter struct {
	options Options
	at      string
	headers http.Header
	http    *http.Client
	spans   chan trace.Span
	lost    atomic.Int64 // spans that found no room in the queue

	// What follows belongs to Run.
	steps      map[stepOf]*collected
	held       int               // spans in steps
	newest     map[int]plan.Step // of each worker, in generation
	generation plan.Generation   // the newest
	sent       []stepOf          // newest last
	waiting    []request
	failed     bool // the last request
	tried      time.Time
	missing    missing
	told       map[string]bool // causes
}

// request is a body to post, with so many spans.
type request struct {
	body  []byte
	spans int
}

// missing counts the spans that the collector does not get.
type missing struct {
	crowded int // found no room here
	refused int // by the collector
	unsent  int // when the node ended
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
		steps: map[stepOf]*collected{}, newest: map[int]plan.Step{}, told: map[string]bool{},
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

// Run sends spans until ctx ends, and then for closeTime what is left. It tells how many are missing.
func (e *Exporter) Run(ctx context.Context) {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for open := true; open; {
		select {
		case s := <-e.spans:
			e.collect(s, time.Now())
		case now := <-tick.C:
			e.settle(now)
			if e.lost.Load() > 0 {
				e.tell("crowded", "more spans come than can be sent, and some are left out: trace fewer steps with a larger --otlp-every")
			}
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
	for _, r := range e.waiting {
		e.missing.unsent += r.spans
	}
	e.missing.crowded += int(e.lost.Load())
	if text := e.missing.text(); text != "" {
		e.options.Warn("--otlp: " + text)
	}
}

// text says how many are missing, and why; it is empty if none are.
func (m missing) text() string {
	var why []string
	for _, of := range []struct {
		spans int
		why   string
	}{{m.crowded, "for which there was no room"}, {m.refused, "that the collector refused"}, {m.unsent, "that could not be sent"}} {
		if of.spans > 0 {
			why = append(why, fmt.Sprintf("%d %s", of.spans, of.why))
		}
	}
	if len(why) == 0 {
		return ""
	}
	return "spans are missing: " + strings.Join(why, ", ")
}

// tell warns of a cause once.
func (e *Exporter) tell(cause, text string) {
	if !e.told[cause] {
		e.told[cause] = true
		e.options.Warn("--otlp: " + text)
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
		e.lost.Add(1) // as in the queue
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
		for _, r := range e.requests(key, c.spans) {
			if len(e.waiting) == mostWaiting {
				e.missing.crowded += r.spans
				e.tell("behind", "so many spans wait for the collector that those of newer steps are left out, until it takes some")
				continue
			}
			e.waiting = append(e.waiting, r)
		}
		if e.sent = append(e.sent, key); len(e.sent) > mostSent {
			e.sent = slices.Delete(e.sent, 0, len(e.sent)-mostSent)
		}
	}
}

// send posts what waits, as far as the collector takes it.
func (e *Exporter) send(ctx context.Context) {
	for len(e.waiting) > 0 {
		err := e.post(ctx, e.waiting[0])
		e.tried = time.Now()
		refused := (*refusal)(nil)
		switch answered := errors.As(err, &refused); {
		case answered && !refused.later():
			e.missing.refused += e.waiting[0].spans
			e.tell(strconv.Itoa(refused.code), fmt.Sprintf("spans are missing: %v: %s", err, refused.help()))
		case answered:
			e.failed = true
			e.tell(strconv.Itoa(refused.code), fmt.Sprintf("%v; the run goes on, and spans wait until they can be sent", err))
			return
		case err != nil:
			e.failed = true
			e.tell("silent", fmt.Sprintf("%v; the run goes on, and spans wait until they can be sent: start the collector, or correct its address", err))
			return
		}
		e.waiting, e.failed = slices.Delete(e.waiting, 0, 1), false
	}
}
