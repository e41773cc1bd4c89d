package node

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestASlowDiskIsTold: after some slow writes in a row, or during one that does not end, and once in a while in the log.
func TestASlowDiskIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines bytes.Buffer
		d := &diskPace{dir: "/runs/7", log: slog.New(slog.NewTextHandler(&lines, nil))}
		write := func(takes time.Duration) {
			d.begin(time.Now())
			time.Sleep(takes)
			d.end(time.Now())
		}
		want := func(when string, slow time.Duration, said int) {
			t.Helper()
			if got, n := d.Slow(time.Now()), strings.Count(lines.String(), "a_write_takes"); got != slow || n != said {
				t.Errorf("%s: %v and %d lines, want %v and %d", when, got, n, slow, said)
			}
		}
		write(10 * time.Millisecond)
		write(2 * time.Second)
		write(2 * time.Second)
		want("after two slow writes", 0, 0)
		write(10 * time.Millisecond)
		write(2 * time.Second)
		write(2 * time.Second)
		want("after two more, not in a row", 0, 0)
		write(3 * time.Second)
		want("after three", 3*time.Second, 1)
		if line := lines.String(); !strings.Contains(line, "dir=/runs/7") || !strings.Contains(line, "the disk is slow") || !strings.Contains(line, "--dir") {
			t.Error(line)
		}
		write(time.Second)
		want("after a fourth", time.Second, 1)
		time.Sleep(slowAgain)
		write(time.Second)
		want("a while later", time.Second, 2)
		write(10 * time.Millisecond)
		want("after a quick one", 0, 2)

		d.begin(time.Now())
		time.Sleep(time.Second)
		d.begin(time.Now()) // another one beside it
		time.Sleep(3 * time.Second)
		want("during a long one", 0, 2)
		time.Sleep(3 * time.Second)
		want("during one that does not end", 7*time.Second, 2)
		d.end(time.Now())
		want("just after it", 0, 2)
		d.end(time.Now())
		want("after both", 0, 2)
	})
}
