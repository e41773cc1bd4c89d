package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// interrupts cancels a context at the first SIGINT or SIGTERM and ends the process at the second.
type interrupts struct {
	exit func(code int)

	mu    sync.Mutex // guards what follows
	kill  func()     // what to do before the end, if anything
	saves bool       // a first interrupt leaves a checkpoint
}

func newInterrupts(exit func(int)) *interrupts { return &interrupts{exit: exit} }

// beforeExit sets a function to call at a second interrupt, before the process ends.
func (i *interrupts) beforeExit(kill func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.kill = kill
}

// leaveCheckpoint makes the answer to a first interrupt announce a checkpoint.
func (i *interrupts) leaveCheckpoint() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.saves = true
}

// first returns the answer to a first interrupt.
func (i *interrupts) first() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.saves {
		return "stopping with a checkpoint"
	}
	return "stopping"
}

// watch listens for signals until stop is called.
func (i *interrupts) watch(parent context.Context, stderr io.Writer) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	signals, over := make(chan os.Signal, 2), make(chan struct{})
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-signals:
			fmt.Fprintf(stderr, "\npnode: %s; interrupt again to end at once\n", i.first())
			cancel()
		case <-over:
			return
		}
		select {
		case <-signals:
			i.end()
		case <-over:
		}
	})
	return ctx, func() {
		signal.Stop(signals)
		close(over)
		watching.Wait()
		cancel()
	}
}

func (i *interrupts) end() {
	i.mu.Lock()
	kill := i.kill
	i.mu.Unlock()
	if kill != nil {
		kill()
	}
	i.exit(exitInterrupted)
}

// untilEOF returns ctx, cancelled too when in ends. Its goroutine reads until then: for standard
// input as long as the process lives.
func untilEOF(ctx context.Context, in io.Reader) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, in) // an error ends it as well
		cancel()
	}()
	return ctx, cancel
}
