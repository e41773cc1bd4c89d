package progress

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"pnode/checkpoint/hub"
)

func TestPulling(t *testing.T) {
	clock := time.Unix(1000, 0)
	var lines strings.Builder
	show := Pulling(&lines, false, func() time.Time { return clock })
	p := hub.Progress{File: "model.safetensors", TotalBytes: 100e6, DoneBytes: 30e6, ResumedBytes: 10e6}
	for range 3 { // 4, 8 and 12 s: only the last is 10 s behind the beginning
		clock = clock.Add(4 * time.Second)
		show(p)
	}
	p.DoneBytes = p.TotalBytes
	show(p) // the end is always shown
	want := "model.safetensors: 30.0 of 100.0 MB, 1.7 MB/s, ETA 42 s\n" +
		"model.safetensors: 100.0 of 100.0 MB, 7.5 MB/s, ETA 0 s\n"
	if lines.String() != want {
		t.Errorf("shown:\n%swant:\n%s", &lines, want)
	}
}

// TestTriesOfADownloadAreSaid on a line each, free of what a terminal obeys, in place of the line that is updated there.
func TestTriesOfADownloadAreSaid(t *testing.T) {
	for terminal, lead := range map[bool]string{false: "", true: "\r\x1b[K"} {
		var b bytes.Buffer
		tell := Retrying(&b, terminal)
		tell(hub.Retry{Why: errors.New("the hub answers 503\x1b[2J"), Wait: 4 * time.Second, Left: 3})
		tell(hub.Retry{Why: errors.New("hub: a cut"), Wait: 16 * time.Second, Left: 1})
		want := lead + "the hub answers 503\ufffd[2J; trying again in 4 s, 3 tries are left\n" + lead + "a cut; trying again in 16 s, the last time\n"
		if b.String() != want {
			t.Errorf("got %q, want %q", b.String(), want)
		}
	}
}
