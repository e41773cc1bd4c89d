package local

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pnode/node/api"
)

func TestGoesOnWhenANodeIsKilled(t *testing.T) {
	t.Parallel()
	s, out := supervise(t, "kill", 3, nil)
	over := make(chan error, 1)
	go func() { over <- s.Run(t.Context()) }()
	var said []string
	out.await(func(r *record) bool {
		said = r.said(`^node-1: pid (\d+)$`)
		return len(r.stepsOf(1)) == 6 && said != nil
	})
	pid, err := strconv.Atoi(said[1])
	if err != nil {
		t.Fatal(err)
	}
	victim, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Kill(); err != nil {
		t.Fatal(err)
	}
	out.await(func(r *record) bool {
		return r.said(`^node-1 ended without a word \(signal: killed\); its log is .*log.txt$`) != nil
	})
	if err := os.WriteFile(filepath.Join(s.options.Dir, "killed"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-over; err != nil {
		t.Fatal(err)
	}
	if got := out.stepsOf(1); !reflect.DeepEqual(got, numbers(1, 6)) {
		t.Errorf("generation 1: steps %v", got)
	}
	if got := out.stepsOf(2); !reflect.DeepEqual(got, numbers(4, 10)) {
		t.Errorf("generation 2: steps %v", got)
	}
	if out.count(api.KindPlan) != 1 || out.count(api.KindDone) != 1 {
		t.Errorf("%d plans, %d ends", out.count(api.KindPlan), out.count(api.KindDone))
	}
}

func TestNodeThatCannotStartEndsTheRun(t *testing.T) {
	t.Parallel()
	s, out := supervise(t, "broken", 3, nil)
	err := s.Run(t.Context())
	want := "node-1: the disk is full (its log is " + filepath.Join(s.nodeDir(1), logFile) +
		"); nothing was trained yet: begin again with `pnode train --resume --dir " + s.options.Dir + "`"
	if !errors.Is(err, ErrNotFinished) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if said := out.said("disk"); said != nil {
		t.Errorf("told twice: %q", out.notices)
	}
	if e := (&NodeError{}); !errors.As(err, &e) || e.Node != 1 || e.Code != 1 {
		t.Errorf("got %+v", e)
	}
}

// TestTheFirstNodeIsKilledAlone: the others were not started yet, and the run can still begin.
func TestTheFirstNodeIsKilledAlone(t *testing.T) {
	t.Parallel()
	s, out := supervise(t, "unready", 3, nil)
	over := make(chan error, 1)
	go func() { over <- s.Run(t.Context()) }()
	out.await(func(r *record) bool { return r.said(`^node-0: state`) != nil })
	s.started()[0].kill()
	err := <-over
	if !errors.Is(err, ErrNotFinished) || !strings.Contains(err.Error(), "node-0 ended without a word") ||
		!strings.Contains(err.Error(), "`pnode train --resume --dir "+s.options.Dir+"`") {
		t.Errorf("got %v", err)
	}
}

// TestWhatAllNodesSayIsSaidOnce: the run goes on nowhere, and all of them know why.
func TestWhatAllNodesSayIsSaidOnce(t *testing.T) {
	t.Parallel()
	first, _ := supervise(t, "short", 2, nil)
	if err := first.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for script, want := range map[string]string{"refused": "the disk is full", "finished": "the run is finished"} {
		s, out := supervise(t, script, 2, func(o *Options) { o.Dir, o.Config.Resume = first.options.Dir, true })
		if err := s.Run(t.Context()); !errors.Is(err, ErrNotFinished) || err.Error() != want {
			t.Errorf("%s: got %v", script, err)
		}
		if said := out.said(want + "|majority"); said != nil {
			t.Errorf("%s: told twice: %q", script, out.notices)
		}
	}
}

// TestALostNodeIsToldOnce: the others go on, so that it is a notice and no error.
func TestALostNodeIsToldOnce(t *testing.T) {
	t.Parallel()
	s, out := supervise(t, "loser", 2, nil)
	over := make(chan error, 1)
	go func() { over <- s.Run(t.Context()) }()
	out.await(func(r *record) bool { return r.said("^node-1: the disk is full") != nil })
	if err := os.WriteFile(filepath.Join(s.options.Dir, "told"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-over; err != nil {
		t.Error(err)
	}
	if n := out.heard("disk"); n != 1 {
		t.Errorf("told %d times: %q", n, out.notices)
	}
}

// TestTellsOnceWhyNothingMoves: as the nodes' events say it, whichever says it.
func TestTellsOnceWhyNothingMoves(t *testing.T) {
	t.Parallel()
	s, out := supervise(t, "asleep", 2, nil)
	s.patience = 20 * time.Millisecond
	over := make(chan error, 1)
	go func() { over <- s.Run(t.Context()) }()
	out.await(func(r *record) bool {
		return r.said("^waiting: no leader: 1 of 3 voters is up$") != nil && r.said("^node-1: state") != nil
	})
	if err := os.WriteFile(filepath.Join(s.options.Dir, "told"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	out.await(func(r *record) bool { return r.said("^waiting: no leader: 2 of 3 voters are up$") != nil })
	if err := os.WriteFile(filepath.Join(s.options.Dir, "stop"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-over; err != nil {
		t.Fatal(err)
	}
	if n := out.heard("^waiting: "); n != 2 {
		t.Errorf("told %d times: %q", n, out.notices)
	}
}

func TestLongLastWordsAreClipped(t *testing.T) {
	if got := clip(strings.Repeat("é", maxSentence)); len(got) > maxSentence+3 || !utf8.ValidString(got) || !strings.HasSuffix(got, "é...") {
		t.Errorf("%d bytes: %q", len(got), got[len(got)-8:])
	}
}

// TestNodeThatMissedTheEnd: the others finish the run while it is on its way back. That is no failure, and does not
// end them.
func TestNodeThatMissedTheEnd(t *testing.T) {
	t.Parallel()
	s, out := supervise(t, "missed", 2, nil)
	over := make(chan error, 1)
	go func() { over <- s.Run(t.Context()) }()
	out.await(func(r *record) bool { return len(r.stepsOf(1)) == 3 && r.said(`^node-1: pid`) != nil })
	write := func(name string) {
		if err := os.WriteFile(filepath.Join(s.options.Dir, name), nil, 0o600); err != nil {
			t.Error(err)
		}
	}
	write("told")
	<-s.started()[1].ended
	write("over")
	if err := <-over; err != nil || out.said("finished") != nil {
		t.Errorf("got %v, and %q", err, out.notices)
	}
}
