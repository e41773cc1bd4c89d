package progress

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"pnode/node/api"
	"pnode/planner/plan"
)

const (
	// textEvery is the time between two lines of text where there is no terminal.
	textEvery = 5 * time.Second
	// outerEvery is the time between two lines about outer steps that are like most.
	outerEvery = 30 * time.Second
)

// Options say where a Writer writes.
type Options struct {
	// JSON gets one line a step; nil is nowhere.
	JSON io.Writer
	// Text gets what people read.
	Text io.Writer
	// Sample gets generated text; nil is Text.
	Sample io.Writer
	// JSONSamples has JSON get a line for each generated text, too.
	JSONSamples bool
	// Terminal and SampleTerminal say that Text and Sample are terminals: a line of Text is
	// updated in place, and generated text is freed of what a terminal would obey.
	Terminal, SampleTerminal bool
	// Steps of the run, for events that do not say; 0 is unknown.
	Steps plan.Step
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Writer shows events. It may be used by many goroutines.
type Writer struct {
	options Options

	mu    sync.Mutex // guards what follows
	shown int        // characters of the updating line on the terminal
	last  time.Time  // when the last line of a step was written
	outer time.Time  // and of an outer step
	// apart is the generation whose newest outer step was told: its steps come many at once, and held has the line of the newest, for the next outer step.
	apart plan.Generation
	held  string
	said  string // by the newest event about the way out, or about why nothing moves
	ended bool   // before the last step: nothing is waited for any more
	pace  Pace
	err   error // the first failed write
}

// New makes a Writer.
func New(o Options) *Writer {
	if o.Sample == nil {
		o.Sample, o.SampleTerminal = o.Text, o.Terminal
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Writer{options: o}
}

// Event shows one event.
func (w *Writer) Event(e api.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch e.Kind {
	case api.KindStep:
		w.said = ""
		w.step(e)
	case api.KindSample:
		if w.options.JSON != nil && w.options.JSONSamples {
			w.write(w.options.JSON, string(appendSample(nil, e)))
		}
		if e.Step < e.Steps { // the run goes on: standard output is for the text at its end
			w.line(underway(e))
			break
		}
		w.line("the model writes, as a sample:")
		text := e.Message
		if w.options.SampleTerminal {
			text = clean(text)
		}
		w.write(w.options.Sample, text+"\n")
	case api.KindOuter:
		now := w.options.Now()
		if w.held != "" && now.Sub(w.last) >= textEvery {
			w.line(w.held)
			w.last = now
		}
		w.apart, w.held = e.Generation, ""
		if quiet := e.Outer != nil && e.Outer.Quiet(); quiet && !w.outer.IsZero() && now.Sub(w.outer) < outerEvery {
			break
		}
		w.line(Describe(e))
		w.outer = now
	case api.KindMember: // the plan that follows says it
	case api.KindDrain, api.KindWaiting: // the way out of a run tells both of the same
		if e.Message != w.said && !(w.ended && e.Kind == api.KindWaiting) {
			w.line(Describe(e))
		}
		w.said = e.Message
	case api.KindState:
		if e.Message != stateStopped { // the line about the end that follows says more
			w.line(Describe(e))
		}
	default:
		w.ended = w.ended || e.Kind == api.KindDone && e.Step != e.Steps
		w.line(Describe(e))
	}
}

// stateStopped is the last state of a node.
const stateStopped = "stopped"

// Notice shows a line of text.
func (w *Writer) Notice(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.line(clean(text))
}

// Write passes lines on to Text, on lines of their own; a log handler writes here.
func (w *Writer) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.endLine()
	return w.options.Text.Write(b)
}

// Close ends an updating line and gives the first error of a write, if there was one.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.endLine()
	return w.err
}

// step writes the JSON line and, when it is time, the text.
func (w *Writer) step(e api.Event) {
	if w.options.JSON != nil {
		w.write(w.options.JSON, string(AppendJSON(nil, e)))
	}
	if e.Steps == 0 {
		e.Steps = w.options.Steps
	}
	now := w.options.Now()
	if e.Step == e.Steps {
		e.HeldOut = nil // the summary that follows says it, and how good it is
	}
	text := stepText(e, w.pace.Remaining(e, now))
	lasting := e.HeldOut != nil || e.Step == e.Steps
	switch {
	case w.options.Terminal:
		pad := max(0, w.shown-len(text))
		w.write(w.options.Text, "\r"+text+strings.Repeat(" ", pad))
		w.shown = len(text)
		if lasting {
			w.endLine()
		}
	case !lasting && w.apart == e.Generation && w.apart != 0:
		w.held = text
	case lasting || w.last.IsZero() || now.Sub(w.last) >= textEvery:
		w.line(text)
		w.last, w.held = now, ""
	}
	if text := api.PrecisionText(e.HeldOut, e.HeldOutF32, 4); text != "" {
		w.line("  held-out in " + text)
	}
}

// endLine leaves the updating line standing.
func (w *Writer) endLine() {
	if w.shown > 0 {
		w.write(w.options.Text, "\n")
		w.shown = 0
	}
}

func (w *Writer) line(text string) {
	w.endLine()
	w.write(w.options.Text, text+"\n")
}

func (w *Writer) write(to io.Writer, text string) {
	if _, err := io.WriteString(to, text); err != nil && w.err == nil {
		w.err = fmt.Errorf("progress: write: %w", err)
	}
}

// Pace estimates the time to the end from the steps seen in this generation. Those that come at once with its first one may have
// been done before, elsewhere: what is measured begins with the first step after them.
type Pace struct {
	begin, last mark
	caughtUp    bool // the newest step came at once with the first one
	// each are the newest seconds a step, over paceEvery or a step at least: steps of other
	// nodes come several at a time.
	each []float64
}

// mark is when a step was seen.
type mark struct {
	generation plan.Generation
	step       plan.Step
	at         time.Time
}

const (
	paceEvery = 2 * time.Second
	atOnce    = time.Second / 2
	// mostPaces bounds how much of the past counts. A stretch of pauseFactor times the middle
	// one was a pause, and says nothing of the steps to come.
	mostPaces   = 31
	pauseFactor = 4
)

// Remaining returns the expected time to the last step; 0 is unknown.
func (p *Pace) Remaining(e api.Event, now time.Time) time.Duration {
	seen := mark{e.Generation, e.Step, now}
	if p.begin.at.IsZero() || e.Generation != p.begin.generation || e.Step <= p.last.step {
		*p = Pace{begin: seen, last: seen}
		return 0
	}
	if early := now.Sub(p.begin.at) < atOnce; early || p.caughtUp {
		p.last, p.caughtUp = seen, early
		return 0
	}
	if now.Sub(p.last.at) >= paceEvery {
		p.each = append(p.each, now.Sub(p.last.at).Seconds()/float64(e.Step-p.last.step))
		p.each = p.each[max(0, len(p.each)-mostPaces):]
		p.last = seen
	}
	if e.Steps <= e.Step || len(p.each) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(p.each))
	sum, count := 0.0, 0
	for _, s := range sorted {
		if s <= pauseFactor*sorted[(len(sorted)-1)/2] {
			sum, count = sum+s, count+1
		}
	}
	return time.Duration(sum / float64(count) * float64(e.Steps-e.Step) * float64(time.Second))
}
