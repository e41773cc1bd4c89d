package local

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"pnode/node/api"
	"pnode/node/config"
	"pnode/node/plain"
	"pnode/pipeline/trace"
)

// Errors of this package.
var (
	// ErrNotFinished: no node finished the run.
	ErrNotFinished = errors.New("local: no node finished the run")
	// ErrForced: the nodes did not stop when they were told.
	ErrForced = errors.New("local: the nodes did not stop in time and were ended; the run goes on from its last checkpoint with --resume")

	errClosed = errors.New("local: being stopped")
)

// ExitFinished is the exit code of a node that has nothing to do: its run is finished.
const ExitFinished = 4

const (
	// pollEvery is the time between two looks for a child's API.
	pollEvery = 50 * time.Millisecond
	// stepPatience is how long no step may come before the reason is asked for.
	stepPatience = 20 * time.Second
	// lastMoments is how long the end of a process may take to show, after its API failed.
	lastMoments = time.Second
	// inviteTTL covers the start of all nodes on a busy machine.
	inviteTTL = time.Hour
)

// Output shows the run; progress.Writer does.
type Output interface {
	Event(api.Event)
	Notice(string)
}

// Options say what to run.
type Options struct {
	// Nodes is the number of processes, from 1 to config.MaxLocal.
	Nodes int
	// Dir gets run.yaml and one folder a node.
	Dir string
	// Config are the settings of the run; Config.Resume goes on with the run in Dir, with
	// the settings it was started with.
	Config config.Config
	// Binary is the pnode executable; Env is added to its environment.
	Binary string
	Env    []string
	Output Output
	// Newcomer hears of machines of the local network that ask to be let in, as node.Output.Newcomer does; nil: Output is told.
	Newcomer func(n api.Newcomer, answer api.Decision)
}

// Supervisor runs node processes.
type Supervisor struct {
	options  Options
	merge    *merge
	fates    fates
	patience time.Duration
	graces   graces
	asking   errgroup.Group // requests to stop
	emulated bool           // the nodes look like devices of a cluster
	listens  []string       // their addresses, by node; nil for any

	mu       sync.Mutex // guards what follows
	children []*child
	closed   bool // no more nodes are started
	forced   bool // the nodes had to be killed
}

// New checks the options.
func New(o Options) (*Supervisor, error) {
	if o.Nodes > config.MaxLocal && o.Config.Cluster != "" {
		return nil, fmt.Errorf("%w: cluster %s has %d devices: want 1 to %d to start a node for each; `pnode plan` and `pnode simulate` take up to %d",
			config.ErrInvalid, o.Config.Cluster, o.Nodes, config.MaxLocal, config.MaxNodes)
	}
	if o.Nodes < 1 || o.Nodes > config.MaxLocal {
		return nil, fmt.Errorf("%w: --local is %d: want 1 to %d", config.ErrInvalid, o.Nodes, config.MaxLocal)
	}
	s := &Supervisor{options: o, patience: stepPatience, graces: defaultGraces}
	s.merge = newMerge(o.Output, s.nameOf, func() { s.fates.tell(o.Output) })
	return s, nil
}

// Run starts the nodes and returns when all have ended. When ctx is done the run is
// checkpointed and stopped first. The error is nil when the run began and a node ended
// well, and wraps ErrNotFinished when none did.
func (s *Supervisor) Run(ctx context.Context) error {
	if err := s.prepare(); err != nil {
		return err
	}
	running, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var nodes, watchers errgroup.Group
	over := make(chan struct{})
	watchers.Go(func() error { s.watch(over); return nil })
	watchers.Go(func() error {
		select {
		case <-running.Done():
			s.end(context.Cause(running), over)
		case <-over:
		}
		return nil
	})
	nodes.Go(func() error {
		err := s.launch(running, &nodes, fail)
		if errors.Is(err, errClosed) {
			return nil
		}
		if err != nil {
			fail(err)
		}
		return err
	})
	err := nodes.Wait()
	close(over)
	_ = watchers.Wait() // neither fails
	if cause := context.Cause(running); cause != nil && cause != context.Cause(ctx) {
		return cause // what failed first, told once
	}
	if err != nil {
		return err
	}
	if step := s.merge.finished(); step > 0 && !s.emulated {
		s.options.Output.Event(api.Event{Kind: api.KindModel, Step: step, Message: fmt.Sprintf(
			"the whole model of step %d is in %s: `pnode generate --dir %s --prompt TEXT` or `pnode export OUT --dir %s`", step, s.options.Dir, plain.Quote(s.options.Dir), plain.Quote(s.options.Dir))})
	}
	if to := s.options.Config.Trace; to != "" { // one file of the nodes' timelines
		var files []string
		for i := range s.options.Nodes {
			files = append(files, s.traceFile(i))
		}
		err = trace.Join(to, files...)
	}
	return errors.Join(err, s.verdict())
}

// launch starts node 0, the nodes that go on from their own folders, and with an invite
// of node 0 the new ones. An error means that the run cannot begin.
func (s *Supervisor) launch(ctx context.Context, g *errgroup.Group, fail func(error)) error {
	first, err := s.start(0, s.trainArgs(), "", g, fail)
	if err != nil {
		return err
	}
	var fresh []int
	for i := 1; i < s.options.Nodes; i++ {
		if !s.options.Config.Resume || !config.Belongs(s.nodeDir(i)) {
			fresh = append(fresh, i)
			continue
		}
		if _, err := s.start(i, s.joinArgs(i), "", g, fail); err != nil {
			return err
		}
	}
	if len(fresh) == 0 {
		s.tellFolder()
		return nil
	}
	invite, err := s.invite(ctx, first, len(fresh))
	if ctx.Err() != nil || errors.Is(err, errEnded) {
		return nil // being stopped, or node 0 is gone and reported
	}
	if err != nil {
		return fmt.Errorf("local: get an invite from node 0: %w", err)
	}
	s.tellFolder()
	for _, i := range fresh {
		if _, err := s.start(i, s.joinArgs(i), invite, g, fail); err != nil {
			return err
		}
	}
	return nil
}

// tellOwner says what members get to see, where other machines can connect to node 0.
func (s *Supervisor) tellOwner(listen string) {
	if config.Reachable(listen) {
		for _, line := range config.TellOwner() {
			s.options.Output.Notice(line)
		}
	}
}

// tellFolder says where the run is and how to look on, once node 0 has begun it.
func (s *Supervisor) tellFolder() {
	s.options.Output.Notice("run folder: " + s.options.Dir)
	s.options.Output.Notice("live page: pnode watch --dir " + plain.Quote(s.options.Dir))
}

// invite waits for the API of node 0 and asks until it is ready to make an invite.
func (s *Supervisor) invite(ctx context.Context, first *child, uses int) (string, error) {
	client, err := first.dial(ctx)
	if err != nil {
		return "", err
	}
	defer client.Close()
	for {
		invite, err := client.Invite(ctx, api.InviteRequest{TTL: inviteTTL, Uses: uses, Owner: true}) // the same person's machine
		if err != nil && !errors.Is(err, api.ErrNotReady) && ended(first.ended, lastMoments) {
			return "", errEnded
		}
		if !errors.Is(err, api.ErrNotReady) {
			return invite, err
		}
		if err := first.pause(ctx); err != nil {
			return "", err
		}
	}
}

// start runs one node, which gets the invite if there is one, and the goroutines that wait for it and follow its events.
func (s *Supervisor) start(index int, args []string, invite string, g *errgroup.Group, fail func(error)) (*child, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosed
	}
	c, err := startChild(index, s.nameOf(index), s.nodeDir(index), s.options.Binary, args, append(s.options.Env[:len(s.options.Env):len(s.options.Env)], config.InviteEnv+"="+invite))
	if err != nil {
		return nil, err
	}
	s.children = append(s.children, c)
	s.options.Output.Notice(fmt.Sprintf("%s: pid %d", c.name, c.pid()))
	if index == 0 && s.options.Config.LAN {
		g.Go(func() error { s.watchLAN(c); return nil })
	}
	g.Go(func() error {
		_ = c.cmd.Wait() // the same as ProcessState, which fate reads
		close(c.ended)
		s.report(c, fail)
		return nil
	})
	g.Go(func() error {
		c.follow(s.merge)
		return nil
	})
	return c, nil
}

// report notes how a node ended that did not end well. One that dies before the first step
// of a new run leaves the others waiting for it, so the run is given up.
func (s *Supervisor) report(c *child, fail func(error)) {
	if c.finished() {
		return
	}
	fate, begun := c.fate(), !s.merge.lastStep().IsZero()
	if begun && fate.Code == ExitFinished {
		return // the others have finished the run while it was on its way back
	}
	s.fates.add(fate)
	switch {
	case fate.Code == ExitFinished:
		fail(plainError{fate})
	case !begun && !s.options.Config.Resume && fate.Sentence != "" && !config.Belongs(s.nodeDir(0)):
		fail(plainError{fate})
	case !begun && !s.options.Config.Resume:
		wayBack := "nothing was trained yet: start it again"
		if config.Belongs(s.nodeDir(0)) {
			wayBack = fmt.Sprintf("nothing was trained yet: begin again with `pnode train --resume --dir %s`", plain.Quote(s.options.Dir))
		}
		fail(unbegunError{fate, wayBack})
	case begun && slices.ContainsFunc(s.started(), func(c *child) bool { return !c.hasEnded() }):
		s.fates.tell(s.options.Output)
	}
}

// verdict returns nil when a node ended well or none was started.
func (s *Supervisor) verdict() error {
	s.mu.Lock()
	forced := s.forced
	s.mu.Unlock()
	if forced {
		return ErrForced
	}
	if slices.ContainsFunc(s.started(), (*child).finished) {
		s.fates.tell(s.options.Output)
		return nil
	}
	return s.fates.verdict()
}
