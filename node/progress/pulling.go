package progress

import (
	"fmt"
	"io"
	"time"

	"pnode/checkpoint/hub"
	"pnode/planner/plan"
)

// Pulling shows how far a download is: the file, bytes, rate, time left.
func Pulling(w io.Writer, terminal bool, now func() time.Time) func(hub.Progress) {
	begin, last := now(), now()
	every, lead, tail := barElsewhere, "", "\n"
	if terminal {
		every, lead, tail = barOnTerminal, "\r\x1b[K", ""
	}
	return func(p hub.Progress) {
		t := now()
		over := p.DoneBytes >= p.TotalBytes
		if t.Sub(last) < every && !over {
			return
		}
		if over {
			tail = "\n"
		}
		last = t
		line := fmt.Sprintf("%s: %.1f of %.1f MB", clean(p.File), float64(p.DoneBytes)/1e6, float64(p.TotalBytes)/1e6)
		came := float64(p.DoneBytes - p.ResumedBytes) // what an earlier call has brought does not count for the rate
		if rate := came / max(t.Sub(begin).Seconds(), 1e-3); rate > 0 {
			left := time.Duration(float64(p.TotalBytes-p.DoneBytes) / rate * float64(time.Second))
			line += fmt.Sprintf(", %.1f MB/s, ETA %s", rate/1e6, plan.Duration(wholeSeconds(left)))
		}
		fmt.Fprint(w, lead, line, tail)
	}
}
