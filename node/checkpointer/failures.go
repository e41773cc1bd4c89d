package checkpointer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"pnode/planner/holders"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

const (
	// holderPatience is for how long copies may not get to their holder, or this one not answer during a copy, until another one is asked for.
	// A line that is dead for a moment is back by then. Checkpoints are not whole before, and a run that says how often has its steps wait.
	holderPatience = 10 * time.Second
	// answerEvery is the time between two questions to a holder that is to answer during a copy, which short ones do without.
	answerEvery = 2 * time.Second
	// copyAgain is the time between two copies of the same state to a holder that is out of reach.
	copyAgain = time.Second
)

// ErrRemote is wrapped by errors that another node has reported.
var ErrRemote = errors.New("the other node refused")

var (
	// errOutOfReach is wrapped by errors of copies that do not get to their holder.
	errOutOfReach = errors.New("checkpointer: the holder cannot be reached")
	// errSilent ends a copy whose holder does not answer: its connection may stand for half a minute.
	errSilent = fmt.Errorf("%w: it does not answer", errOutOfReach)
	// errUnsent says that the holder was asked, and could not get the chunks from here.
	errUnsent = fmt.Errorf("%w: it gets nothing from here", errOutOfReach)
)

// untilSilent returns a context that ends once a holder has not answered for some time. end returns when it last did; before the first
// time that is the beginning.
func (c *Checkpointer) untilSilent(ctx context.Context, holder plan.PeerID) (_ context.Context, end func() (heard time.Time)) {
	heard := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	if c.Answers == nil {
		return ctx, func() time.Time {
			cancel(nil)
			return heard
		}
	}
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		for time.Since(heard) < holderPatience {
			select {
			case <-time.After(answerEvery):
			case <-ctx.Done():
				return
			}
			if c.Answers(ctx, holder) {
				heard = time.Now()
			}
		}
		cancel(errSilent)
	}()
	return ctx, func() time.Time {
		cancel(nil)
		<-watching
		return heard
	}
}

// again blocks until a holder that was out of reach is to be asked for a copy once more. It returns false where it is not: the log names no other one
// whatever is said of it, or the log has changed so that the copy is not for it.
func (s PlanSaver) again(ctx context.Context, r copyRequest, holder plan.PeerID) bool {
	waiting, stop := context.WithTimeout(ctx, copyAgain)
	defer stop()
	changed := consensus.Await(waiting, s.Consensus, func(now consensus.State) bool {
		return s.stuck(now, holder) || now.Holder(r.stage()) != holder || r.Step < now.Checkpoint.Step || s.over(r.Generation)
	})
	return changed != nil && ctx.Err() == nil
}

// stuck reports whether copies of what this node computes stay with a holder, whatever it says of that one.
func (c *Checkpointer) stuck(now consensus.State, holder plan.PeerID) bool {
	return now.CopyFailures.Between(c.Self, holder) || len(now.CopyFailures.Of(c.Self)) >= holders.MaxFailures
}

// replaced reports whether another holder is to have a copy that has just failed. Where its own holder was out of reach it has the log name
// another one.
func (s PlanSaver) replaced(ctx context.Context, r copyRequest, holder plan.PeerID, failure error) bool {
	another := func(now consensus.State) bool { return now.Holder(r.stage()) != holder }
	switch now := s.Consensus.State(); {
	case another(now):
		return true
	case !errors.Is(failure, errOutOfReach), r.Step < now.Checkpoint.Step, s.stuck(now, holder):
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, storedPatience)
	defer cancel()
	err := s.Consensus.Propose(ctx, consensus.CopyFailed{Peer: s.Self, Holder: holder})
	if err == nil || errors.Is(err, consensus.ErrStale) { // another one is named already, which this node has not read yet
		err = consensus.Await(ctx, s.Consensus, func(now consensus.State) bool { return now.CopyFailures.Between(s.Self, holder) || another(now) })
	}
	if err != nil {
		s.Log.Warn("copies of what this node computes do not get to their holder, and no other one is named", "holder", holder, "cause", err)
		return false
	}
	s.Log.Warn("copies of what this node computes did not get to their holder: another one is asked to keep them", "holder", holder, "for", holderPatience)
	return another(s.Consensus.State())
}
