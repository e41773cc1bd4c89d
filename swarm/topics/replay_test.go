package topics

import (
	"testing"
)

func TestReplayWindow(t *testing.T) {
	var w window
	for _, c := range []struct {
		n    uint64
		want bool
	}{
		{1000, true},
		{1000, false},
		{1001, true},
		{999, true},
		{999, false},
		{1001, false},
		{1000 + 1 - replayWindow, false},
		{1001 - replayWindow + 1, true},
		{1 << 60, true},
		{1001, false},
		{1<<60 - 1, true},
		{1<<60 + replayWindow, true},
		{1 << 60, false},
		{1<<60 + 1, true},
		{1<<60 + 1, false},
	} {
		if got := w.take(c.n); got != c.want {
			t.Errorf("%d: fresh %v, want %v", c.n, got, c.want)
		}
	}
}
