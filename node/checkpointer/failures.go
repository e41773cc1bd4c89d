package checkpointer

import (
	"context"
	"errors"
	"sync"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

const (
	// holderPatience is for how long copies may not get to their holder, or this one not answer during a copy, until another one is asked for.
	// A line that is dead for a moment is back by then. Checkpoints are not whole before, and a run that says how often has its steps wait.
	holderPatience = 10 * time.Second
	// answerEvery is the time between two questions to a holder that is to answer during a copy, which short ones do without.
	answerEvery = 2 * time.Second
)

// errSilent ends a copy whose holder does not answer: its connection may stand for half a minute.
var errSilent = errors.New("checkpointer: the holder does not answer")

// untilSilent returns a context that ends once a holder has not answered for some time.
func (c *Checkpointer) untilSilent(ctx context.Context, holder plan.PeerID) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	if c.Answers == nil {
		return ctx, func() { end(nil) }
	}
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		for heard := time.Now(); time.Since(heard) < holderPatience; {
			select {
			case <-time.After(answerEvery):
			case <-ctx.Done():
				return
			}
			if c.Answers(ctx, holder) {
				heard = time.Now()
			}
		}
		end(errSilent)
	}()
	return ctx, func() {
		end(nil)
		<-watching
	}
}

// failures notes since when copies have not got to their holders. The zero value is ready to use. Its methods may be called concurrently.
type failures struct {
	mu         sync.Mutex // guards what follows
	generation plan.Generation
	since      map[plan.PeerID]time.Time
}

// note notes a copy that failed, and when it was asked for. It returns for how long none of the generation has got to that holder.
func (f *failures) note(g plan.Generation, holder plan.PeerID, asked time.Time) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.since == nil || f.generation != g {
		f.generation, f.since = g, map[plan.PeerID]time.Time{}
	}
	if since, failed := f.since[holder]; !failed || asked.Before(since) {
		f.since[holder] = asked
	}
	return time.Since(f.since[holder])
}

// forget notes that a copy got to a holder, or that another one is to keep it.
func (f *failures) forget(holder plan.PeerID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.since, holder)
}

// replaced reports whether another holder is to have a copy that has just failed. Where none has got to the holder for too long it has
// the log name another one.
func (s PlanSaver) replaced(ctx context.Context, r copyRequest, holder plan.PeerID, asked time.Time) bool {
	another := func(now consensus.State) bool { return now.Holder(r.stage()) != holder }
	failing, now := s.failing.note(r.Generation, holder, asked), s.Consensus.State()
	switch {
	case another(now):
		return true
	case failing < holderPatience, r.Step < now.Checkpoint.Step, now.CopyFailures.Between(s.Self, holder): // there is nobody better
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, storedPatience)
	defer cancel()
	s.failing.forget(holder)
	err := s.Consensus.Propose(ctx, consensus.CopyFailed{Peer: s.Self, Holder: holder})
	if err == nil {
		err = consensus.Await(ctx, s.Consensus, func(now consensus.State) bool { return now.CopyFailures.Between(s.Self, holder) || another(now) })
	}
	if err != nil {
		s.Log.Warn("copies of what this node computes do not get to their holder, and no other one is named", "holder", holder, "for", failing, "cause", err)
		return false
	}
	s.Log.Warn("copies of what this node computes did not get to their holder: another one is asked to keep them", "holder", holder, "for", failing)
	return another(s.Consensus.State())
}
