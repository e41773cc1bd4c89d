package schedule

import (
	"fmt"
	"strings"
)

// mark points at one action of some workers: worker -> index, -1 for the whole line.
type mark map[int]int

// Around a marked action a grid shows that many neighbours on each side.
const gridContext = 6

// fail is an ErrInvalid with the programs around the marked actions; nil marks none.
func (s Schedule) fail(at mark, format string, args ...any) error {
	why := fmt.Sprintf(format, args...)
	if at == nil {
		return fmt.Errorf("%w: %s", ErrInvalid, why)
	}
	return fmt.Errorf("%w: %s\n%s", ErrInvalid, why, s.grid(at))
}

// stuck is the error of a run that cannot go on: every waiting action is marked.
func (e *engine) stuck() error {
	at := mark{}
	first := -1
	for w, actions := range e.s.Workers {
		if e.pos[w] < len(actions) {
			at[w] = e.pos[w]
			if first < 0 {
				first = w
			}
		}
	}
	return e.s.fail(at, "worker %d waits for ever at %v", first, e.s.Workers[first][e.pos[first]])
}

// grid prints one line per worker with marks: the action in brackets and its
// neighbours, or the start of the program. At most 64 workers are shown.
func (s Schedule) grid(at mark) string {
	var b strings.Builder
	shown := 0
	for w, actions := range s.Workers {
		i, marked := at[w]
		if !marked && len(s.Workers) > 8 {
			continue
		}
		if shown++; shown > 64 {
			b.WriteString("...\n")
			break
		}
		if !marked || i < 0 {
			i = -1
		}
		from, to := max(i-gridContext, 0), min(max(i, 0)+gridContext, len(actions))
		fmt.Fprintf(&b, "%4d |", w)
		if from > 0 {
			b.WriteString(" ...")
		}
		for k := from; k < to; k++ {
			if k == i {
				fmt.Fprintf(&b, " [%v]", actions[k])
			} else {
				fmt.Fprintf(&b, " %v", actions[k])
			}
		}
		if to < len(actions) {
			b.WriteString(" ...")
		}
		if marked && i < 0 {
			b.WriteString("   <--")
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// MaxGridColumns bounds the width of a timeline's grid.
const MaxGridColumns = 1 << 12

// Grid prints the timeline as text, one line per worker, one column per unit of time.
// An action stands in the column in which it starts and dots fill the rest of its time;
// sends and receives take no time and are left out. A unit that needs more than
// MaxGridColumns columns is raised.
func (t Timeline) Grid(unit Nanos) string {
	unit = max(unit, 1, ceilDiv(t.Makespan, MaxGridColumns))
	columns := int(ceilDiv(t.Makespan, unit))
	width := 1
	rows := make([][]string, len(t.Workers))
	for w, spans := range t.Workers {
		rows[w] = make([]string, columns)
		for _, s := range spans {
			if s.Action.Op.communicates() || s.Start == s.End {
				continue
			}
			from, to := int(s.Start/unit), int(ceilDiv(s.End, unit))
			for c := from + 1; c < to; c++ {
				rows[w][c] = "."
			}
			rows[w][from] = s.Action.String()
			width = max(width, len(rows[w][from]))
		}
	}
	var b strings.Builder
	for w, row := range rows {
		line := fmt.Sprintf("%4d |", w)
		for _, cell := range row {
			line += fmt.Sprintf(" %*s", width, cell)
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}
