package generation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"pnode/node/gossip"
	"pnode/pipeline"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// Remains holds what the workers here have left of a generation that ended, until the next plan takes it over. The node's loop
// owns it. A nil Remains has nothing.
type Remains struct {
	Parts
	plan   plan.Plan
	begun  consensus.State    // the log when the generation began
	whole  bool               // the generation ended in order, its newest step is saved
	told   bool               // the others know of it
	asked  *consensus.Salvage // acted upon
	cancel context.CancelFunc // ends what is done about it
	done   chan struct{}      // closed once nothing is

	held []*pipeline.Retained // of what is done while it is, else of the loop
}

// Remains returns what the generation has left, once it has ended: with err, or in order where that is nil.
func (g *Generation) Remains(err error) *Remains {
	r := &Remains{Parts: g.Parts, plan: g.plan, begun: g.state, whole: err == nil, held: g.held, cancel: func() {}, done: make(chan struct{})}
	close(r.done)
	return r
}

// Left returns what is left here.
func (r *Remains) Left() (stages []gossip.RetainedStage) {
	if r == nil {
		return nil
	}
	for _, w := range r.held {
		for _, at := range w.Reach() {
			stages = append(stages, gossip.RetainedStage{Replica: at.Replica, Stage: at.Stage, Step: at.Step, Pending: at.Pending})
		}
	}
	return stages
}

// Tell has the others know what is left here.
func (r *Remains) Tell() {
	if r != nil {
		r.told = true
		r.Watch.Retained(r.Left())
	}
}

// Follow does what the log wants of what is left here. Once a checkpoint has it the others need not know of it any more. It is
// given up where no plan is to follow: then the finished model needs the memory.
func (r *Remains) Follow(ctx context.Context, state consensus.State) *Remains {
	if r == nil {
		return nil
	}
	if state.Finished || state.Checkpoint.Step == state.Run.Train.Steps {
		r.Close()
		r.Watch.Released()
		return nil
	}
	select {
	case <-r.done:
		if r.told && r.saved(state.Checkpoint.Step) {
			r.told = false
			r.Watch.Released()
		}
	default:
	}
	if s := state.Salvage; s != nil && s != r.asked && s.Generation == r.plan.Generation {
		r.stop()
		ctx, cancel := context.WithCancel(ctx)
		r.asked, r.cancel, r.done = s, cancel, make(chan struct{})
		var replays plan.Step
		for _, p := range s.Parts {
			if !r.plan.Has(p.By, plan.StageID{Replica: p.Replica, Stage: p.Stage}) {
				replays = s.Step - p.From
			}
		}
		r.Watch.Salvaging(replays)
		r.Group.Go(func() error {
			defer close(r.done)
			r.carryOut(ctx, *s)
			return nil
		})
	}
	return r
}

// saved reports whether a step is as new as all that can be had here.
func (r *Remains) saved(step plan.Step) bool {
	for _, w := range r.held {
		if slices.ContainsFunc(w.Reach(), func(at pipeline.Reach) bool { return max(at.Step, at.Pending) > step }) {
			return false
		}
	}
	return true
}

// stop ends what is done and waits for it.
func (r *Remains) stop() {
	r.cancel()
	<-r.done
}

// Close gives all of it up.
func (r *Remains) Close() {
	if r == nil {
		return
	}
	r.stop()
	for _, w := range r.held {
		w.Close()
	}
	r.held = nil
}

// HandOver ends what is done here, and returns the workers whose state the next plan may go on with: the log has a
// checkpoint of their newest step, of the same bits, and the plan starts there. The others are closed.
func (r *Remains) HandOver(next plan.Plan) []*pipeline.Retained {
	if r == nil {
		return nil
	}
	r.stop()
	held := r.held
	if r.plan.Generation+1 != next.Generation || !r.whole && (r.asked == nil || r.asked.Step != next.Start) {
		r.Close()
		return nil
	}
	r.held = nil
	return held
}

// carryOut brings what is held here to a salvage's step and saves what the log has this node save. What another one saves
// stays in memory, for a next plan that leaves it where it is. What is replayed does not wait for the log to know that. A worker that cannot do its part is given up, as the others
// learn.
func (r *Remains) carryOut(ctx context.Context, s consensus.Salvage) {
	failed := make([]bool, len(r.held))
	each := func(do func(context.Context, *pipeline.Retained, consensus.Salvage) error) {
		var work sync.WaitGroup
		for i, w := range r.held {
			if failed[i] {
				continue
			}
			work.Go(func() {
				if err := do(ctx, w, s); err != nil && ctx.Err() == nil {
					r.Log.Warn("cannot save what is left of a generation", "generation", s.Generation, "step", s.Step, "device", w.Worker().Device, "cause", err)
					failed[i] = true
				}
			})
		}
		work.Wait()
	}
	each(r.reach) // before a replay, which needs the commit, too
	var err error
	var replaying sync.WaitGroup
	replaying.Go(func() { err = r.replay(ctx, s) })
	each(r.save)
	replaying.Wait()
	var good []*pipeline.Retained
	for i, w := range r.held {
		if failed[i] {
			w.Close()
		} else {
			good = append(good, w)
		}
	}
	r.held = good
	if err != nil && ctx.Err() == nil {
		r.Log.Warn("cannot replay the steps of members that are gone", "generation", s.Generation, "to", s.Step, "cause", err)
		r.Replayer.Fail()
	}
	if err != nil || slices.Contains(failed, true) {
		r.Tell()
	}
}

// reach brings a worker to a salvage's step, where it lacks only the commit.
func (r *Remains) reach(ctx context.Context, w *pipeline.Retained, s consensus.Salvage) error {
	if slices.ContainsFunc(w.Reach(), func(at pipeline.Reach) bool { return at.Pending == s.Step }) {
		return r.bring(ctx, w, s.Step)
	}
	return nil
}

// save saves the parts of a salvage that one worker here has.
func (r *Remains) save(ctx context.Context, w *pipeline.Retained, s consensus.Salvage) error {
	for _, part := range s.Parts {
		id := plan.StageID{Replica: part.Replica, Stage: part.Stage}
		mine := func(at pipeline.Reach) bool { return at.StageID == id && at.Step == s.Step }
		if part.By != r.Self || !slices.ContainsFunc(w.Reach(), mine) {
			continue
		}
		if err := w.Save(ctx, r.Checkpointer.Salvage(r.plan).Save, id, part.Layers); err != nil {
			return err
		}
	}
	return nil
}

// bring has a worker take the commit of the step that it has reported from another member: the coordinator, if it
// lives, and else whoever has it.
func (r *Remains) bring(ctx context.Context, w *pipeline.Retained, step plan.Step) error {
	failures := []error{fmt.Errorf("nobody has the commit of step %d", step)}
	state := r.Consensus.State()
	peers := append([]plan.PeerID{state.Substitute.Coordinator(r.plan)}, r.plan.Peers()...)
	for i, peer := range peers {
		m, _ := state.Member(peer)
		if i > 0 && peer == peers[0] || peer == r.Self || m.State == consensus.Gone {
			continue
		}
		commit, err := r.askCommit(ctx, peer, commitRequest{r.plan.Generation, step})
		if err == nil {
			if err = w.Bring(ctx, commit); err == nil {
				r.Commits.Put(r.plan.Generation, commit)
				return nil
			}
		}
		failures = append(failures, fmt.Errorf("%s: %w", state.NameOf(peer), err))
	}
	return errors.Join(failures...)
}
