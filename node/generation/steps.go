package generation

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"pnode/pipeline"
	"pnode/pipeline/link"
	"pnode/planner/plan"
)

// lostGrace is how long workers have to notice a lost link themselves, and to say what they missed.
const lostGrace = 300 * time.Millisecond

// The log's word on a lost member is waited for as long as a leader needs to ask the member's host, or to be elected first.
const (
	substitutePatience = 1500 * time.Millisecond
	electionPatience   = 3 * time.Second
)

// patience bounds the wait for the log's word on a lost member.
func (g *Generation) patience(lost plan.PeerID) time.Duration {
	if leader, _, _ := g.Consensus.Leader(); leader == "" || leader == lost {
		return electionPatience
	}
	return substitutePatience
}

// runSteps returns when all workers have finished their steps, or one of them or a link fails. Where a member's process has ended
// that another one may stand in for, the log's word on it is waited for.
func (g *Generation) runSteps(saves context.Context, workers []*pipeline.Worker, session *link.Session) error {
	c := newCrew(g.Group, saves)
	defer c.abort()
	for _, w := range workers {
		c.add(func(steps context.Context) error { return w.Run(steps, saves) })
	}
	var overdue <-chan time.Time
	var missing, replaced plan.PeerID
	with := needed(g.plan, g.Self)
	for c.left > 0 && c.failed == nil {
		select {
		case err := <-c.ends:
			c.ended(err)
		case peer := <-session.Lost():
			switch {
			case peer == replaced || !slices.Contains(with, peer):
			case missing == "" && replaced == "" && g.replaceable(peer) && session.Ended(peer):
				missing, overdue = peer, time.After(g.patience(peer))
			default:
				return g.endWithout(peer, c, session)
			}
		case <-overdue:
			return g.endWithout(missing, c, session)
		case s := <-g.substitutes:
			overdue, replaced = nil, s.Lost
			if err := g.substitute(s, session); err != nil {
				g.Log.Warn("cannot go on without a lost node", "peer", s.Lost, "cause", err)
				return g.endWithout(s.Lost, c, session)
			}
			if s.By == g.Self {
				standIn{Generation: g, of: s, session: session, own: workers}.begin(saves, c)
			}
		}
	}
	err := c.wait()
	if found := (*plan.Fault)(nil); err == nil || errors.As(err, &found) {
		return err
	}
	if missing != "" && missing != replaced {
		return g.lost(session, missing)
	}
	for {
		select { // a worker may notice the broken link first
		case peer := <-session.Lost():
			if peer != replaced && slices.Contains(with, peer) {
				return g.lost(session, peer)
			}
		default:
			return err
		}
	}
}

// endWithout ends the steps for want of a peer.
func (g *Generation) endWithout(peer plan.PeerID, c *crew, session *link.Session) error {
	session.Drop(peer, link.ErrGone)
	c.waitFor(lostGrace) // a worker knows more about it if it waited for that peer
	c.abort()
	if err, found := c.wait(), (*plan.Fault)(nil); errors.As(err, &found) {
		return err // whoever is found out may close its links
	}
	return g.lost(session, peer)
}

// crew runs the workers of a generation. It belongs to one goroutine.
type crew struct {
	group  *errgroup.Group
	steps  context.Context // ends with abort, and when a worker fails
	abort  context.CancelFunc
	ends   chan error
	left   int   // workers that run
	failed error // of the first one that did
}

func newCrew(group *errgroup.Group, ctx context.Context) *crew {
	c := &crew{group: group, ends: make(chan error)}
	c.steps, c.abort = context.WithCancel(ctx)
	return c
}

// add begins to run a worker.
func (c *crew) add(run func(steps context.Context) error) {
	c.left++
	c.group.Go(func() error { c.ends <- run(c.steps); return nil })
}

// ended takes in how a worker ended.
func (c *crew) ended(err error) {
	c.left--
	if err != nil && c.failed == nil {
		c.failed = err
		c.abort()
	}
}

// waitFor waits for the workers for some time, or until one fails.
func (c *crew) waitFor(d time.Duration) {
	over := time.After(d)
	for c.left > 0 && c.failed == nil {
		select {
		case err := <-c.ends:
			c.ended(err)
		case <-over:
			return
		}
	}
}

// wait waits for all workers and returns how the first one failed.
func (c *crew) wait() error {
	for c.left > 0 {
		c.ended(<-c.ends)
	}
	return c.failed
}
