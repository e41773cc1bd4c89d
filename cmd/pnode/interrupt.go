package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"pnode/node/api"
	"pnode/node/notice"
)

// interrupts cancels a context at the first signal that asks this process to end, and ends it at the second.
type interrupts struct {
	exit  func(code int)
	saves atomic.Bool // a first interrupt leaves a checkpoint, and says so
	// grace is how long this process has from a signal of the system on, a time.Duration; 0 is not known.
	grace atomic.Int64

	mu    sync.Mutex // guards what follows
	kill  func()     // what to do before the end, if anything
	drain *api.Event // how far this node's way out has come, nil before it has begun
}

// beforeExit sets a function to call at a second interrupt, before the process ends.
func (i *interrupts) beforeExit(kill func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.kill = kill
}

// follow notes how far the way out has come, for who is interrupted twice.
func (i *interrupts) follow(e api.Event) {
	if e.Kind != api.KindDrain {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.drain = &e
}

// notice returns why a signal ends this process, and when at the latest.
func (i *interrupts) notice(s os.Signal) notice.Notice {
	if s == os.Interrupt { // people wait
		return notice.Notice{Why: "Ctrl-C"}
	}
	return notice.Within(signalName(s), time.Duration(i.grace.Load()), time.Now())
}

// watch listens for signals until stop is called. The context's cause is a *notice.Notice.
func (i *interrupts) watch(parent context.Context, stderr io.Writer) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals, over := make(chan os.Signal, 2), make(chan struct{})
	signal.Notify(signals, append(ending, os.Interrupt, syscall.SIGTERM)...)
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case s := <-signals:
			how := "stopping"
			if i.saves.Load() {
				how += " with a checkpoint"
			}
			fmt.Fprintf(stderr, "\npnode: %s; interrupt again to end at once\n", how)
			why := i.notice(s)
			cancel(&why)
		case <-over:
			return
		}
		select {
		case <-signals:
			i.mu.Lock()
			kill, drain := i.kill, i.drain
			i.mu.Unlock()
			switch {
			case drain != nil:
				fmt.Fprintf(stderr, "\npnode: ending at once. Given up: %s. Nothing committed is lost: the run goes on from the newest state that is kept, the checkpoint of step %d at the oldest\n", drain.Message, drain.Step)
			case i.saves.Load():
				fmt.Fprint(stderr, "\npnode: ending at once. Given up: the checkpoint that was to be made now. Steps since the newest one are made again, unless other nodes have them\n")
			}
			if kill != nil {
				kill()
			}
			i.exit(exitInterrupted)
		case <-over:
		}
	})
	return ctx, func() {
		signal.Stop(signals)
		close(over)
		watching.Wait()
		cancel(nil)
	}
}
