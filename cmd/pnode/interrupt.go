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
)

// interrupts cancels a context at the first SIGINT or SIGTERM and ends the process at the second.
type interrupts struct {
	exit  func(code int)
	saves atomic.Bool // a first interrupt leaves a checkpoint, and says so

	mu   sync.Mutex // guards kill
	kill func()     // what to do before the end, if anything
}

// beforeExit sets a function to call at a second interrupt, before the process ends.
func (i *interrupts) beforeExit(kill func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.kill = kill
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
			how := "stopping"
			if i.saves.Load() {
				how += " with a checkpoint"
			}
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
