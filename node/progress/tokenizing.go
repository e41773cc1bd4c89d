package progress

import (
	"fmt"
	"io"
	"time"

	"pnode/node/dataset/shard"
	"pnode/planner/plan"
)

// Tokenizing shows how far the making of token shards is: share, tokens, rate, time left.
func Tokenizing(w io.Writer, terminal bool, now func() time.Time) func(shard.Progress) {
	begin, last := now(), now()
	every, lead, tail := barElsewhere, "", "\n"
	if terminal {
		every, lead, tail = barOnTerminal, "\r\x1b[K", ""
	}
	return func(p shard.Progress) {
		t := now()
		over := p.ReadBytes >= p.TotalBytes
		if t.Sub(last) < every && !over {
			return
		}
		if over {
			tail = "\n"
		}
		last = t
		line := fmt.Sprintf("%.1f of %.1f MB, %d documents, %.1f M tokens",
			float64(p.ReadBytes)/1e6, float64(p.TotalBytes)/1e6, p.Documents, float64(p.Tokens)/1e6)
		if n := p.Skipped.Documents(); n > 0 {
			line += fmt.Sprintf(", %d malformed left out", n)
		}
		read := float64(p.ReadBytes - p.ResumedBytes) // what an earlier call has read does not count for the rate
		if rate := read / max(t.Sub(begin).Seconds(), 1e-3); rate > 0 {
			left := time.Duration(float64(p.TotalBytes-p.ReadBytes) / rate * float64(time.Second))
			line += fmt.Sprintf(", %.1f MB/s, ETA %s", rate/1e6, plan.Duration(wholeSeconds(left)))
		}
		fmt.Fprint(w, lead, line, tail)
	}
}
