package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"pnode/node"
	"pnode/node/api"
	"pnode/node/notice"
)

// interrupts cancels a context at the first signal that asks this process to end, and ends it at the second.
type interrupts struct {
	exit  func(code int)
	saves atomic.Bool // a first interrupt leaves a checkpoint, and says so
	// grace is how long this process has from a signal of the system on, a time.Duration; 0 is not known.
	grace atomic.Int64

	mu    sync.Mutex       // guards what follows
	asks  chan<- os.Signal // of watch; nil before
	kill  func()           // what to do before the end, if anything
	view  func()           // ends the view that has the terminal; nil for none
	phase node.Phase       // of the node that this process runs; empty for none
	told  bool             // something has happened to it
	begun bool             // it has seen a plan
	end   *api.Event       // the newest word on its end, nil before there is one
}

// beforeExit sets a function to call at a second interrupt, before the process ends.
func (i *interrupts) beforeExit(kill func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.kill = kill
}

// viewEnds bounds the wait for a view: a terminal may take nothing.
const viewEnds = 2 * time.Second

// viewing notes that a view has the terminal until over is called. An interrupt ends ctx and waits for that before it says anything: the
// terminal is left as it was.
func (i *interrupts) viewing(parent context.Context) (ctx context.Context, over func()) {
	ctx, cancel := context.WithCancel(parent)
	gone := make(chan struct{})
	i.setView(func() {
		cancel()
		select {
		case <-gone:
		case <-time.After(viewEnds):
		}
	})
	return ctx, func() {
		i.setView(nil)
		cancel()
		close(gone)
	}
}

func (i *interrupts) setView(end func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.view = end
}

func (i *interrupts) endView() {
	i.mu.Lock()
	end := i.view
	i.mu.Unlock()
	if end != nil {
		end()
	}
}

// press does what Ctrl-C does, for whoever has read that key from a terminal.
func (i *interrupts) press() {
	i.mu.Lock()
	defer i.mu.Unlock()
	select {
	case i.asks <- os.Interrupt:
	default: // two wait already
	}
}

// follow notes how far the node has come, for who interrupts it.
func (i *interrupts) follow(e api.Event) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.told = true
	switch e.Kind {
	case api.KindState:
		i.phase = node.Phase(e.Message)
	case api.KindPlan:
		i.begun = true
	case api.KindDrain, api.KindDone:
		i.end = &e
	}
}

// ended returns the error with which the node has ended, as errBegun, too, if it was refused a file after it had begun.
func (i *interrupts) ended(err error) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.told && errors.Is(err, fs.ErrPermission) {
		return begunError{err}
	}
	return err
}

// starts notes that this process runs a node, which has not seen a plan yet.
func (i *interrupts) starts() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.phase = node.Joining
}

// first says what a first interrupt does.
func (i *interrupts) first() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.end != nil && i.end.Kind == api.KindDone:
		return "this node is done, and stays while the others need it"
	case i.phase == node.Serving:
		return "the run is finished; stopping once others have what this node has"
	case i.phase != "" && !i.begun, !i.saves.Load():
		return "stopping"
	}
	return "stopping with a checkpoint"
}

// second says what a second interrupt gives up, and with which code the process ends.
func (i *interrupts) second() (text string, code int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch e := i.end; {
	case e != nil && e.Settled && e.Kind == api.KindDone:
		return "Nothing is given up: this node only stayed for the others", exitOK
	case e != nil && e.Settled:
		return "Nothing is given up: others have all that this node has", exitOK
	case i.phase == node.Serving:
		why := "others do not have all that this node has of the finished model"
		if e != nil {
			why = e.Message
		}
		return fmt.Sprintf("Nothing is lost, but not done yet: %s. Start this node again in its folder to go on with that", why), exitNotHanded
	case e != nil && e.Kind == api.KindDone:
		return e.Message, exitFailure
	case e != nil:
		from := fmt.Sprintf("the checkpoint of step %d", e.Step)
		if e.Step == 0 {
			from = "its start"
		}
		if e.Votes {
			from += ", once this node is started again: without it the others are too few to vote"
		} else {
			from += " at the oldest"
		}
		return fmt.Sprintf("Given up while %s. Nothing committed is lost: the run goes on from the newest state that is kept, %s", e.Message, from), exitInterrupted
	case i.phase != "" && !i.begun:
		return "Nothing is given up: this node had made no step", exitOK
	case i.saves.Load():
		return "Given up: the checkpoint that was to be made now. Steps since the newest one are made again, unless other nodes have them", exitInterrupted
	}
	return "", exitInterrupted
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
	i.mu.Lock()
	i.asks = signals
	i.mu.Unlock()
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case s := <-signals:
			i.endView()
			fmt.Fprintf(stderr, "\npnode: %s; interrupt again to end at once\n", i.first())
			why := i.notice(s)
			cancel(&why)
		case <-over:
			return
		}
		select {
		case <-signals:
			i.endView()
			text, code := i.second()
			if text != "" {
				fmt.Fprintf(stderr, "\npnode: ending at once. %s\n", text)
			}
			i.mu.Lock()
			kill := i.kill
			i.mu.Unlock()
			if kill != nil {
				kill()
			}
			i.exit(code)
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
