package listening

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/consensus"
	"pnode/swarm/twofold"
)

// TestListeningCountsOverStarts plays a node's starts, each as long as it says, by looks once a second. "b" is never heard
// unless a start says when.
func TestListeningCountsOverStarts(t *testing.T) {
	type start struct {
		lasts time.Duration
		heard time.Duration // since the start; 0 is never
		pause time.Duration // of the process at its end, without a look
	}
	for name, c := range map[string]struct {
		starts []start
		want   time.Duration // at the end of the last one
	}{
		"one start":                         {[]start{{lasts: 3 * time.Minute}}, 3 * time.Minute},
		"two starts":                        {[]start{{lasts: 3 * time.Minute}, {lasts: time.Minute}}, 4 * time.Minute},
		"a short start":                     {[]start{{lasts: 5 * time.Second}, {lasts: time.Minute}}, time.Minute},
		"a long one counts to the bound":    {[]start{{lasts: time.Hour}, {lasts: time.Minute}}, mostListened + time.Minute},
		"many count to the bound":           {[]start{{lasts: 5 * time.Minute}, {lasts: 5 * time.Minute}, {}}, mostListened},
		"heard in the last one":             {[]start{{lasts: 5 * time.Minute}, {lasts: time.Minute, heard: 20 * time.Second}}, 40 * time.Second},
		"heard in between":                  {[]start{{lasts: 5 * time.Minute}, {lasts: 20 * time.Second, heard: 19 * time.Second}, {lasts: time.Minute}}, time.Minute},
		"heard, and then silent for longer": {[]start{{lasts: 2 * time.Minute, heard: time.Minute}, {lasts: time.Minute}}, 2*time.Minute - 3*time.Second},
		"stopped for an hour":               {[]start{{lasts: 58 * time.Second, pause: time.Hour}, {}}, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			dir, now := t.TempDir(), time.Unix(1000, 0)
			var got time.Duration
			for _, s := range c.starts {
				began := now
				l := New(dir, began, func(_ plan.PeerID, now time.Time) (time.Duration, bool) {
					ago := now.Sub(began.Add(s.heard))
					return ago, s.heard != 0 && ago >= 0
				}, slog.New(slog.DiscardHandler))
				look := func(after time.Duration) {
					now = now.Add(after)
					if err := l.look([]plan.PeerID{"b"}, now); err != nil {
						t.Fatal(err)
					}
				}
				for range s.lasts / time.Second {
					look(time.Second)
				}
				if s.pause > 0 {
					look(s.pause)
				}
				got = l.silent("b", now)
			}
			if got < c.want-keepListened || got > c.want {
				t.Errorf("%v are counted, want %v or up to %v less", got, c.want, keepListened)
			}
		})
	}
}

// TestADamagedSilenceIsNone: what cannot be read, or says too much, brings no recovery nearer.
func TestADamagedSilenceIsNone(t *testing.T) {
	if mostListened+2*time.Minute > consensus.RecoverAfter {
		t.Errorf("%v of earlier starts count, a recovery wants %v", mostListened, consensus.RecoverAfter)
	}
	for _, text := range []string{`{"b":481}`, `{"b":-1}`, `{"b":1`, `[]`, `{"b":1}{}`} {
		dir := t.TempDir()
		if err := twofold.Write(dir, silenceFile, []byte(text)); err != nil {
			t.Fatal(err)
		}
		now := time.Unix(1000, 0)
		l := New(dir, now, func(plan.PeerID, time.Time) (time.Duration, bool) { return 0, false }, slog.New(slog.DiscardHandler))
		if got := l.silent("b", now); got != 0 {
			t.Errorf("%s: %v", text, got)
		}
	}
	dir := t.TempDir()
	l := New(dir, time.Unix(1000, 0), func(plan.PeerID, time.Time) (time.Duration, bool) { return time.Second, true }, slog.New(slog.DiscardHandler))
	if err := l.look([]plan.PeerID{"b"}, time.Unix(1001, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, silenceFile)); err == nil {
		t.Error("a voter that is heard is written down")
	}
}
