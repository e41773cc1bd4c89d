package netlab

import (
	"fmt"
	"slices"
	"strings"
)

// flow names two hosts, the second of which gets packets of the first; nil for all.
type flow struct{ from, to *Host }

// Cut has the internet drop what one host sends to another, without a word to either. A nil host stands for all.
func (l *Lab) Cut(from, to *Host) {
	l.t.Helper()
	l.dropped = append(l.dropped, flow{from, to})
	l.filter()
}

// Mend ends what one Cut of these hosts began.
func (l *Lab) Mend(from, to *Host) {
	l.t.Helper()
	if i := slices.Index(l.dropped, flow{from, to}); i >= 0 {
		l.dropped = slices.Delete(l.dropped, i, i+1)
	}
	l.filter()
}

// filter replaces the rules of the internet's router by those for what is dropped now, at once.
func (l *Lab) filter() {
	l.t.Helper()
	var rules strings.Builder
	for _, p := range l.dropped {
		if p.from != nil {
			fmt.Fprintf(&rules, "iifname %q ", p.from.outside)
		}
		if p.to != nil {
			fmt.Fprintf(&rules, "oifname %q ", p.to.outside)
		}
		rules.WriteString("drop\n")
	}
	l.router.nft(fmt.Sprintf("table inet cut\ndelete table inet cut\ntable inet cut {\nchain through {\ntype filter hook forward priority 0\n%s}\n}\n", rules.String()))
}

// Redraw changes rate, delay and losses of the host's line, in both directions, from now on.
func (h *Host) Redraw(line Line) {
	for _, w := range h.ways {
		w.mu.Lock()
		w.line = line.filled()
		w.mu.Unlock()
	}
}
