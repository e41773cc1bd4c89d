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

// watch listens for signals until stop is called.
func (i *interrupts) watch(parent context.Context, stderr io.Writer) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	signals, over := make(chan os.Signal, 2), make(chan struct{})
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-signals:
			i.mu.Lock()
			how := "stopping"
			if i.saves {
				how += " with a checkpoint"
			}
			i.mu.Unlock()
			fmt.Fprintf(stderr, "\npnode: %s; interrupt again to end at once\n", how)
			cancel()
		case <-over:
			return
		}
		select {
		case <-signals:
			i.mu.Lock()
			kill := i.kill
			i.mu.Unlock()
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
		cancel()
	}
}
