//go:build unix

package main

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"pnode/node"
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
	i.follow(api.Event{Kind: api.KindDrain, Step: 20, Message: "leaving (Ctrl-C): 12.0 of 40.0 MB"})
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

// TestInterruptsEndAView before they say anything, and before the process ends.
func TestInterruptsEndAView(t *testing.T) {
	stderr, exited := make(lines, 1), make(chan int, 1)
	i := &interrupts{}
	i.saves.Store(true)
	var views, ended atomic.Int32
	view := func() {
		views.Add(1)
		ctx, over := i.viewing(t.Context())
		go func() {
			<-ctx.Done()
			ended.Add(1)
			over()
		}()
	}
	i.exit = func(code int) {
		if ended.Load() != views.Load() {
			t.Error("the process ends while a view has the terminal")
		}
		exited <- code
	}
	_, stop := i.watch(t.Context(), stderr)
	defer stop()
	for range 2 {
		view()
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if line := <-stderr; ended.Load() != views.Load() {
			t.Errorf("%q is written over a view", line)
		}
	}
	<-exited
}

// TestWhatInterruptsSayByTheNodesWay: what ends at once gives up what the node has not done, and nothing else.
func TestWhatInterruptsSayByTheNodesWay(t *testing.T) {
	state := func(p node.Phase) api.Event { return api.Event{Kind: api.KindState, Message: string(p)} }
	begun := []api.Event{state(node.Profiling), state(node.Waiting), {Kind: api.KindPlan}, state(node.Training)}
	drain := api.Event{Kind: api.KindDrain, Step: 20, Message: "leaving (Ctrl-C): 12.0 of 40.0 MB"}
	voting := drain
	voting.Votes = true
	atStart, nothing := api.Event{Kind: api.KindDrain, Message: "saving"}, api.Event{Kind: api.KindDrain, Message: "all", Settled: true}
	done := api.Event{Kind: api.KindDone, Message: "finished at step 30", Settled: true}
	diverged := api.Event{Kind: api.KindDone, Message: "stopped since it diverged"}
	for _, c := range []struct {
		name          string
		events        []api.Event
		first, second string
		code          int
	}{
		{"nobody is reached yet", nil, "stopping", "Nothing is given up: this node had made no step", exitOK},
		{"a member that waits for others", begun[:2], "stopping", "Nothing is given up: this node had made no step", exitOK},
		{"steps are made", begun, "stopping with a checkpoint", "Given up: the checkpoint that was to be made now", exitInterrupted},
		{"a part goes to others", append(slices.Clone(begun), drain), "stopping with a checkpoint", "Given up while leaving (Ctrl-C): 12.0 of 40.0 MB. Nothing committed is lost: the run goes on from the newest state that is kept, the checkpoint of step 20 at the oldest", exitInterrupted},
		{"the others need its vote", append(slices.Clone(begun), voting), "stopping with a checkpoint", "that is kept, the checkpoint of step 20, once this node is started again: without it the others are too few to vote", exitInterrupted},
		{"before the first checkpoint", append(slices.Clone(begun), atStart), "stopping with a checkpoint", "the newest state that is kept, its start at the oldest", exitInterrupted},
		{"others have all", append(slices.Clone(begun), nothing), "stopping with a checkpoint", "Nothing is given up: others have all", exitOK},
		{"the finished model is awaited", append(slices.Clone(begun), state(node.Serving), drain), "the run is finished; stopping once others have what this node has", "Nothing is lost, but not done yet: leaving (Ctrl-C): 12.0 of 40.0 MB. Start this node again", exitNotHanded},
		{"the finished model is awaited, and both come at once", append(slices.Clone(begun), state(node.Serving)), "the run is finished; stopping once others have what this node has", "Nothing is lost, but not done yet: others do not have all", exitNotHanded},
		{"it is over, others are waited for", append(slices.Clone(begun), drain, state(node.Stopped), done), "this node is done, and stays while the others need it", "Nothing is given up: this node only stayed for the others", exitOK},
		{"it has diverged", append(slices.Clone(begun), state(node.Stopped), diverged), "this node is done", "stopped since it diverged", exitFailure},
	} {
		i := &interrupts{}
		i.saves.Store(true)
		i.starts()
		for _, e := range c.events {
			i.follow(e)
		}
		text, code := i.second()
		if first := i.first(); !strings.HasPrefix(first, c.first) || c.first == "stopping" && first != c.first {
			t.Errorf("%s: first %q, want %q", c.name, first, c.first)
		}
		if !strings.Contains(text, c.second) || code != c.code {
			t.Errorf("%s: second %d %q, want %d %q", c.name, code, text, c.code, c.second)
		}
	}
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
