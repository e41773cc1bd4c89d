package local

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// interruptTraining interrupts a run after its third step and gives how it ended.
func interruptTraining(t *testing.T, s *Supervisor, out *record) error {
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- s.Run(ctx) }()
	out.await(func(r *record) bool { return len(r.stepsOf(1)) == 3 && r.said(`^node-1: state`) != nil })
	cancel()
	return <-over
}

func TestInterruptStopsTheRun(t *testing.T) {
	t.Parallel()
	for _, script := range []string{"stoppable", "deaf"} { // by the API, and by closing standard input
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			s, out := supervise(t, script, 2, nil)
			if err := interruptTraining(t, s, out); err != nil {
				t.Error(err)
			}
			if died := out.said("ended"); died != nil {
				t.Errorf("%q", out.notices)
			}
		})
	}
}

// TestInterruptOfAMinority: no node can take the request, and none ends by itself.
func TestInterruptOfAMinority(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]error{"minority": nil, "stuck": ErrForced} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			s, out := supervise(t, script, 2, nil)
			s.graces.ask = 50 * time.Millisecond
			if script == "stuck" {
				s.graces.hangUp = 50 * time.Millisecond
			}
			if err := interruptTraining(t, s, out); !errors.Is(err, want) || (err != nil) != (want != nil) {
				t.Errorf("got %v, want %v", err, want)
			}
		})
	}
}

// TestInterruptWhileOneIsOnItsWayIn: the others stop, and it need not wait for them in vain.
func TestInterruptWhileOneIsOnItsWayIn(t *testing.T) {
	t.Parallel()
	s, out := supervise(t, "late", 2, nil)
	s.graces.stop, s.graces.last = time.Hour, 50*time.Millisecond
	if err := interruptTraining(t, s, out); err != nil {
		t.Error(err)
	}
}

func TestInterruptWhileStarting(t *testing.T) {
	t.Parallel()
	s, _ := supervise(t, "deaf", 3, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Run(ctx); err != nil {
		t.Error(err)
	}
}

func TestKillEndsEverything(t *testing.T) {
	t.Parallel()
	s, out := supervise(t, "stuck", 2, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	over := make(chan error, 1)
	go func() { over <- s.Run(ctx) }()
	out.await(func(r *record) bool { return len(r.stepsOf(1)) == 3 && r.said(`^node-1: state`) != nil })
	s.Kill()
	err := <-over
	if !errors.Is(err, ErrNotFinished) {
		t.Fatalf("got %v", err)
	}
	for i := range 2 { // as a notice or in the error
		text := fmt.Sprintf("node-%d ended without a word", i)
		if n := out.heard(text) + strings.Count(err.Error(), text); n != 1 {
			t.Errorf("%s: told %d times: %q and %v", text, n, out.notices, err)
		}
	}
}
