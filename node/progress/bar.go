package progress

import (
	"fmt"
	"io"
	"time"

	"pnode/planner/plan"
)

// On a terminal one line is rewritten, elsewhere lines would pile up.
const (
	barOnTerminal = 500 * time.Millisecond
	barElsewhere  = 10 * time.Second
)

// Bar shows how much of something long is done: on a terminal on one line that is rewritten
// and goes in the end, elsewhere on a line now and then.
type Bar struct {
	w          io.Writer
	terminal   bool
	what       string
	total      int64
	now        func() time.Time
	begin, old time.Time
}

// NewBar begins now; total is in any unit.
func NewBar(w io.Writer, terminal bool, what string, total int64, now func() time.Time) *Bar {
	t := now()
	return &Bar{w: w, terminal: terminal, what: what, total: total, now: now, begin: t, old: t}
}

// At shows that so much is done.
func (b *Bar) At(done int64) {
	every := barElsewhere
	if b.terminal {
		every = barOnTerminal
	}
	t := b.now()
	if t.Sub(b.old) < every || b.total <= 0 {
		return
	}
	b.old = t
	line := fmt.Sprintf("%s: %d%%", clean(b.what), min(100, 100*done/b.total))
	if spent := t.Sub(b.begin); done > 0 && done < b.total {
		left := time.Duration(float64(spent) / float64(done) * float64(b.total-done))
		line += fmt.Sprintf(", ETA %s", plan.Duration(wholeSeconds(left)))
	}
	if b.terminal {
		fmt.Fprint(b.w, "\r\x1b[K", line)
	} else {
		fmt.Fprintln(b.w, line)
	}
}

// Close takes the line off a terminal.
func (b *Bar) Close() {
	if b.terminal && b.old != b.begin {
		fmt.Fprint(b.w, "\r\x1b[K")
	}
}

// Line shows what something long does now: on a terminal on one line that is rewritten, elsewhere on a line now and then.
type Line struct {
	w        io.Writer
	terminal bool
	now      func() time.Time
	old      time.Time // when a line was written last elsewhere, at first when it began
	shown    bool      // on the terminal
}

// NewLine begins now.
func NewLine(w io.Writer, terminal bool, now func() time.Time) *Line {
	return &Line{w: w, terminal: terminal, now: now, old: now()}
}

// At shows a text.
func (l *Line) At(text string) {
	if l.terminal {
		l.shown = true
		fmt.Fprint(l.w, "\r\x1b[K", clean(text))
		return
	}
	if t := l.now(); t.Sub(l.old) >= barElsewhere {
		l.old = t
		fmt.Fprintln(l.w, clean(text))
	}
}

// Clear takes the line off a terminal, so that something else can be written there.
func (l *Line) Clear() {
	if l.shown {
		l.shown = false
		fmt.Fprint(l.w, "\r\x1b[K")
	}
}
