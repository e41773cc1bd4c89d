package progress

import (
	"fmt"
	"io"
	"time"

	"pnode/checkpoint/hub"
	"pnode/node/dataset/shard"
	"pnode/node/plain"
	"pnode/planner/plan"
)

// Pulling shows how far a download is: the file, bytes, rate, time left.
func Pulling(w io.Writer, terminal bool, now func() time.Time) func(hub.Progress) {
	show := reading(w, terminal, now)
	return func(p hub.Progress) {
		show(p.DoneBytes, p.ResumedBytes, p.TotalBytes, func() string { return clean(p.File) + ": " + ofMB(p.DoneBytes, p.TotalBytes) })
	}
}

// Retrying says why a download is tried again, and when, on a line of its own.
func Retrying(w io.Writer, terminal bool) func(hub.Retry) {
	lead := ""
	if terminal {
		lead = "\r\x1b[K" // in place of how far it is
	}
	return func(r hub.Retry) {
		fmt.Fprintf(w, "%s%s; trying again in %s, %s\n", lead, clean(plain.Text(r.Why)), plan.Duration(r.Wait), leftTries(r.Left))
	}
}

func leftTries(n int) string {
	if n == 1 {
		return "the last time"
	}
	return fmt.Sprintf("%d tries are left", n)
}

// Tokenizing shows how far the making of token shards is: share, tokens, rate, time left.
func Tokenizing(w io.Writer, terminal bool, now func() time.Time) func(shard.Progress) {
	show := reading(w, terminal, now)
	return func(p shard.Progress) {
		show(p.ReadBytes, p.ResumedBytes, p.TotalBytes, func() string {
			line := fmt.Sprintf("%s, %s documents, %s tokens", ofMB(p.ReadBytes, p.TotalBytes), plan.Number(p.Documents), plan.Number(p.Tokens))
			if n := p.Skipped.Documents(); n > 0 {
				line += fmt.Sprintf(", %d malformed left out", n)
			}
			return line
		})
	}
}

// ofMB prints how much of a file is done, of a small one in kB.
func ofMB(done, total int64) string {
	unit, name := 1e6, "MB"
	if total < 1e6 {
		unit, name = 1e3, "kB"
	}
	return fmt.Sprintf("%.1f of %.1f %s", float64(done)/unit, float64(total)/unit, name)
}

// reading shows a line with rate and time left now and then, and at the end. The bytes that an earlier call has read do not count for the rate.
func reading(w io.Writer, terminal bool, now func() time.Time) func(done, resumed, total int64, line func() string) {
	begin, last := now(), now()
	every, lead, tail := barElsewhere, "", "\n"
	if terminal {
		every, lead, tail = barOnTerminal, "\r\x1b[K", ""
	}
	return func(done, resumed, total int64, line func() string) {
		t := now()
		over := done >= total
		if t.Sub(last) < every && !over {
			return
		}
		if over {
			tail = "\n"
		}
		last = t
		text := line()
		if rate := float64(done-resumed) / max(t.Sub(begin).Seconds(), 1e-3); rate > 0 {
			left := time.Duration(float64(total-done) / rate * float64(time.Second))
			text += fmt.Sprintf(", %.1f MB/s, ETA %s", rate/1e6, plan.Duration(wholeSeconds(left)))
		}
		fmt.Fprint(w, lead, text, tail)
	}
}
