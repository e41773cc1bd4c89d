package slowlines

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"pnode/planner"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
	"pnode/swarm/twofold"
)

// windowSteps is how many steps make a window.
const windowSteps = 4

// TestSlowLinesAreForgotten where no plan has used them for long, later each time, and where they are as fast as before.
func TestSlowLinesAreForgotten(t *testing.T) {
	state := consensus.State{Members: []consensus.Member{{Peer: "a", Profile: plan.Profile{Links: []plan.LinkProfile{{Peer: "b", BytesPerS: 1e6, RTTNanos: 10e6}}}}}}
	off, same := planner.Reselection{Promised: 100, Measured: 150, Now: 150}, planner.Reselection{Promised: 100, Measured: 105, Now: 105}
	window := func(rate int64) planner.Measured {
		return planner.Measured{Links: []planner.MeasuredLink{{From: "a", To: "b", BytesPerS: rate, RTTNanos: 10e6}, {From: "b", To: "a", BytesPerS: 1e6, RTTNanos: 9e6}}}
	}
	var l Lines
	now, step := time.Unix(1e9, 0), plan.Step(0)
	windows := func(n int, r planner.Reselection, rate int64) {
		for range n {
			step, now = step+windowSteps, now.Add(time.Second)
			l.Note(state, r, window(rate), step, now, false)
		}
	}
	expect := func(what string, changes, slow int) {
		t.Helper()
		if known := l.With(nil); l.changes != changes || len(known) != slow || slow > 0 && (known[0].From != "a" || known[0].BytesPerS != 5e5) {
			t.Errorf("%s: %d changes, known are %v", what, l.changes, known)
		}
	}
	windows(2, off, 5e5)
	windows(1, same, 5e5)
	windows(2, off, 5e5)
	expect("never three windows in a row", 0, 0)
	windows(1, off, 5e5)
	expect("three windows", 1, 1)
	if n := l.Lasted(plan.Plan{}, step); n != 2*windowSteps+1 {
		t.Errorf("for %d steps", n)
	}
	windows(6, off, 5e5)
	expect("no news", 1, 1)
	windows(3, off, 0)
	expect("too little was sent to know", 1, 1)
	windows(3, off, 9e5)
	expect("nearly as fast as before", 2, 0)
	changes := 2
	for turn := range 7 {
		l.Note(state, off, window(5e5), step, now, true)
		changes++
		expect("said to be slower", changes, 1)
		idle := idleTime << min(turn+1, mostDoubled)
		elsewhere := planner.Measured{Links: window(0).Links[1:]}
		now = now.Add(idle)
		l.Note(state, same, elsewhere, step, now, false)
		expect("idle", changes, 1)
		now = now.Add(time.Second)
		changes++
		l.Note(state, same, elsewhere, step, now, false)
		expect("idle for long", changes, 0)
	}
}

// TestRestart: a node that starts again counts on the slow lines that it saw, for as long as without the restart. A file of other bytes, or of
// more than it may say, counts as none.
func TestRestart(t *testing.T) {
	dir, now := t.TempDir(), time.Unix(1e9, 0)
	off := planner.Reselection{Promised: 100, Measured: 150, Now: 150}
	slow := planner.MeasuredLink{From: "a", To: "b", BytesPerS: 5e5, RTTNanos: 1e7, JitterNanos: 1e6, Transport: plan.TCP}
	log := slog.New(slog.DiscardHandler)
	start := func() (*Lines, *File) {
		l, f := &Lines{}, InFolder(dir, log)
		f.Load(l, now)
		return l, f
	}
	l, f := start()
	f.Keep(l, now)
	if twofold.Exists(dir, linesFile) {
		t.Error("a node that knows of no slow line has a file")
	}
	l.Note(consensus.State{}, off, planner.Measured{Links: []planner.MeasuredLink{slow}}, 8, now, true)
	f.Keep(l, now)
	expect := func(what string, want ...planner.MeasuredLink) {
		t.Helper()
		if got, _ := start(); !slices.Equal(got.With(nil), want) {
			t.Errorf("%s: known are %v, want %v", what, got.With(nil), want)
		}
	}
	expect("at once", slow)
	if l, _ := start(); l.Changes() == 0 || l.Lasted(plan.Plan{}, 100) != 0 {
		t.Errorf("after a restart %d changes that lasted for %d steps", l.Changes(), l.Lasted(plan.Plan{}, 100))
	}
	now = now.Add(-time.Hour)
	expect("by a clock that was ahead", slow)
	now = now.Add(time.Hour + idleTime)
	expect("at the end of its time", slow)
	now = now.Add(time.Second)
	expect("after it")

	now = time.Unix(1e9, 0).Add(keepEvery)
	l.slow[[2]plan.PeerID{"a", "b"}].used = now
	f.Keep(l, now)
	now = now.Add(idleTime)
	expect("used since", slow)

	good := `{"from": "a", "to": "b", "bytes_per_s": 1, "rtt_ns": 1, "jitter_ns": 1, "used": 1000000500, "times": 1}`
	for _, bad := range []string{
		"", "{", "[{}]", strings.ReplaceAll(good, `"a"`, `"b"`), "[" + strings.ReplaceAll(good, `"a"`, `""`) + "]", "[" + strings.ReplaceAll(good, `"times": 1`, `"times": 0`) + "]",
		"[" + strings.ReplaceAll(good, `"rtt_ns": 1`, `"rtt_ns": -1`) + "]", "[" + strings.ReplaceAll(good, `"rtt_ns": 1`, `"rtt_ns": 9000000000000000`) + "]",
		"[" + strings.ReplaceAll(good, `"to"`, `"at"`) + "]", "[" + strings.Repeat(good+",", mostKept) + good + "]",
	} {
		if err := twofold.Write(dir, linesFile, []byte(bad)); err != nil {
			t.Fatal(err)
		}
		expect(bad[:min(len(bad), 100)])
	}
}

// FuzzDecode: what is read back is within bounds, whatever the file has.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`[{"from": "a", "to": "b", "bytes_per_s": 1, "rtt_ns": 1, "jitter_ns": 1, "transport": "tcp", "used": 5, "times": 1}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		kept, err := decode(data)
		if err != nil && len(kept) > 0 {
			t.Fatal("lines with an error")
		}
		for _, k := range kept {
			if k.From == k.To || k.Times < 1 || k.BytesPerS < 0 || k.RTTNanos > maxFigure {
				t.Fatalf("%+v", k)
			}
		}
	})
}
