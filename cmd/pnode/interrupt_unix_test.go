//go:build unix

package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"pnode/node/api"
	"pnode/node/notice"
)

// lines passes what is written on.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

func TestFirstInterruptCancelsSecondEnds(t *testing.T) {
	stderr, exited, killed := make(lines, 1), make(chan int, 1), make(chan struct{}, 1)
	i := &interrupts{exit: func(code int) { exited <- code }}
	ctx, stop := i.watch(t.Context(), stderr)
	defer stop()
	i.beforeExit(func() { killed <- struct{}{} })
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
	if line := <-stderr; !strings.Contains(line, "again") {
		t.Errorf("said %q", line)
	}
	if len(exited) != 0 {
		t.Fatal("ended at the first interrupt")
	}
	if why := (*notice.Notice)(nil); !errors.As(context.Cause(ctx), &why) || why.Why != "Ctrl-C" || !why.At.IsZero() {
		t.Errorf("it ends for %v", context.Cause(ctx))
	}
	i.follow(api.Event{Kind: api.KindDrain, Step: 20, Message: "12.0 of 40.0 MB"})
	i.follow(api.Event{Kind: api.KindStep, Step: 21})
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if line := <-stderr; !strings.Contains(line, "12.0 of 40.0 MB") || !strings.Contains(line, "step 20") {
		t.Errorf("gives up without a word of what: %q", line)
	}
	if code := <-exited; code != exitInterrupted {
		t.Errorf("exit code %d", code)
	}
	<-killed
}

// TestWhatASecondInterruptGivesUp: before a node has begun its way out the end costs what no checkpoint has.
func TestWhatASecondInterruptGivesUp(t *testing.T) {
	stderr, exited := make(lines, 1), make(chan int, 1)
	i := &interrupts{exit: func(code int) { exited <- code }}
	i.saves.Store(true)
	_, stop := i.watch(t.Context(), stderr)
	defer stop()
	for _, want := range []string{"with a checkpoint; interrupt again", "Given up: the checkpoint"} {
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		if line := <-stderr; !strings.Contains(line, want) {
			t.Errorf("said %q, want %q", line, want)
		}
	}
	<-exited
}

// TestTheSystemsSignalsHaveATime: what the system kills has the time that --grace says, whoever presses Ctrl-C waits.
func TestTheSystemsSignalsHaveATime(t *testing.T) {
	i := &interrupts{}
	i.grace.Store(int64(time.Minute))
	for _, c := range []struct {
		signal os.Signal
		why    string
		timed  bool
	}{{os.Interrupt, "Ctrl-C", false}, {syscall.SIGTERM, "SIGTERM", true}} {
		n := i.notice(c.signal)
		if left := time.Until(n.At); n.Why != c.why || n.At.IsZero() == c.timed || c.timed && (left <= 0 || left > time.Minute) {
			t.Errorf("%v: %q, %v left", c.signal, n.Why, left)
		}
	}
}
