package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"pnode/node/gossip"
	"pnode/pipeline"
	"pnode/pipeline/link"
	"pnode/pipeline/wire"
	"pnode/pipeline/wire/strict"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// remains holds what the workers here have left of a generation that ended, until the next plan takes it over. The loop
// owns it. A nil remains has nothing.
type remains struct {
	*Node
	plan   plan.Plan
	whole  bool               // the generation ended in order, its newest step is saved
	told   bool               // the others know of it
	asked  *consensus.Salvage // acted upon
	cancel context.CancelFunc // ends what is done about it
	done   chan struct{}      // closed once nothing is

	held []*pipeline.Retained // of what is done while it is, else of the loop
}

// retains reports whether the state of workers that ended with an error is good: another peer's absence was the reason.
func retains(err error, self plan.PeerID) bool {
	if f := (*plan.Fault)(nil); errors.As(err, &f) {
		return (f.Kind == plan.LostLink || f.Kind == plan.NoProgress) && f.Accused != self
	}
	return err == nil || errors.Is(err, link.ErrLost) || errors.Is(err, link.ErrLeft)
}

// newRemains returns what a generation has left that ended with an error, or nil.
func newRemains(g *generation, err error) *remains {
	r := &remains{Node: g.Node, plan: g.plan, whole: err == nil, held: g.held, cancel: func() {}, done: make(chan struct{})}
	close(r.done)
	return r
}

// tell has the others know what is left here.
func (r *remains) tell() {
	if r == nil {
		return
	}
	var stages []gossip.RetainedStage
	for _, w := range r.held {
		for _, at := range w.Reach() {
			stages = append(stages, gossip.RetainedStage{Replica: at.Replica, Stage: at.Stage, Step: at.Step, Pending: at.Pending})
		}
	}
	r.told = true
	r.monitor.SetRetained(stages)
	r.sendHeartbeat()
}

// follow does what the log wants of what is left here. Once a checkpoint has it the others need not know of it any more. It is
// given up where no plan is to follow: then the finished model needs the memory.
func (r *remains) follow(ctx context.Context, state consensus.State) *remains {
	if r == nil {
		return nil
	}
	if state.Finished || state.Checkpoint.Step == state.Run.Train.Steps {
		r.close()
		r.monitor.SetRetained(nil)
		return nil
	}
	select {
	case <-r.done:
		if r.told && r.saved(state.Checkpoint.Step) {
			r.told = false
			r.monitor.SetRetained(nil)
		}
	default:
	}
	if s := state.Salvage; s != nil && s != r.asked && s.Generation == r.plan.Generation {
		r.stop()
		ctx, cancel := context.WithCancel(ctx)
		r.asked, r.cancel, r.done = s, cancel, make(chan struct{})
		replays := slices.ContainsFunc(s.Parts, func(p consensus.SalvagePart) bool {
			return !r.plan.Has(p.By, plan.StageID{Replica: p.Replica, Stage: p.Stage})
		})
		r.monitor.Interruption.Salvage(replays, time.Now())
		r.group.Go(func() error {
			defer close(r.done)
			r.carryOut(ctx, *s)
			return nil
		})
	}
	return r
}

// saved reports whether a step is as new as all that can be had here.
func (r *remains) saved(step plan.Step) bool {
	for _, w := range r.held {
		if slices.ContainsFunc(w.Reach(), func(at pipeline.Reach) bool { return max(at.Step, at.Pending) > step }) {
			return false
		}
	}
	return true
}

// stop ends what is done and waits for it.
func (r *remains) stop() {
	r.cancel()
	<-r.done
}

// close gives all of it up.
func (r *remains) close() {
	if r == nil {
		return
	}
	r.stop()
	for _, w := range r.held {
		w.Close()
	}
	r.held = nil
}

// handOver ends what is done here, and returns the workers whose state the next plan may go on with: the log has a
// checkpoint of their newest step, of the same bits, and the plan starts there. The others are closed.
func (r *remains) handOver(next plan.Plan) []*pipeline.Retained {
	if r == nil {
		return nil
	}
	r.stop()
	held := r.held
	if r.plan.Generation+1 != next.Generation || !r.whole && (r.asked == nil || r.asked.Step != next.Start) {
		r.close()
		return nil
	}
	r.held = nil
	return held
}

// carryOut brings what is held here to a salvage's step and saves what the log has this node save. What another one saves
// stays in memory, for a next plan that leaves it where it is. A worker that cannot do its part is given up, as the others
// learn.
func (r *remains) carryOut(ctx context.Context, s consensus.Salvage) {
	var work sync.WaitGroup
	failed := make([]bool, len(r.held))
	for i, w := range r.held {
		work.Go(func() {
			if err := r.save(ctx, w, s); err != nil && ctx.Err() == nil {
				r.log.Warn("cannot save what is left of a generation", "generation", s.Generation, "step", s.Step, "device", w.Worker().Device, "cause", err)
				failed[i] = true
			}
		})
	}
	work.Wait()
	var good []*pipeline.Retained
	for i, w := range r.held {
		if failed[i] {
			w.Close()
		} else {
			good = append(good, w)
		}
	}
	r.held = good
	err := r.replay(ctx, s)
	if err != nil && ctx.Err() == nil {
		r.log.Warn("cannot replay the steps of members that are gone", "generation", s.Generation, "to", s.Step, "cause", err)
		r.replayer.Fail()
	}
	if err != nil || slices.Contains(failed, true) {
		r.tell()
	}
}

// save saves the parts of a salvage that one worker here has.
func (r *remains) save(ctx context.Context, w *pipeline.Retained, s consensus.Salvage) error {
	if slices.ContainsFunc(w.Reach(), func(at pipeline.Reach) bool { return at.Pending == s.Step }) {
		if err := r.bring(ctx, w, s.Step); err != nil {
			return err
		}
	}
	for _, part := range s.Parts {
		id := plan.StageID{Replica: part.Replica, Stage: part.Stage}
		mine := func(at pipeline.Reach) bool { return at.StageID == id && at.Step == s.Step }
		if part.By != r.self || !slices.ContainsFunc(w.Reach(), mine) {
			continue
		}
		if err := w.Save(ctx, r.checkpointer.Salvage(r.plan).Save, id, part.Layers); err != nil {
			return err
		}
	}
	return nil
}

// commitTimeout bounds the question for one commit.
const commitTimeout = 2 * time.Second

// bring has a worker take the commit of the step that it has reported from another member: the coordinator, if it
// lives, and else whoever has it.
func (r *remains) bring(ctx context.Context, w *pipeline.Retained, step plan.Step) error {
	failures := []error{fmt.Errorf("nobody has the commit of step %d", step)}
	state := r.raft.State()
	peers := append([]plan.PeerID{state.Substitute.Coordinator(r.plan)}, r.plan.Peers()...)
	for i, peer := range peers {
		m, _ := state.Member(peer)
		if i > 0 && peer == peers[0] || peer == r.self || m.State == consensus.Gone {
			continue
		}
		commit, err := r.askCommit(ctx, peer, step)
		if err == nil {
			if err = w.Bring(ctx, commit); err == nil {
				r.commits.Put(r.plan.Generation, commit)
				return nil
			}
		}
		failures = append(failures, fmt.Errorf("%s: %w", state.NameOf(peer), err))
	}
	return errors.Join(failures...)
}

// protocolCommit asks for the commit of a step: a commitRequest, answered with a wire.Commit.
const protocolCommit = "/pnode/commit/1"

type commitRequest struct {
	Generation plan.Generation `json:"generation"`
	Step       plan.Step       `json:"step"`
}

func (r *remains) askCommit(ctx context.Context, peer plan.PeerID, step plan.Step) (wire.Commit, error) {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	answer, err := r.requests.Ask(ctx, peer, protocolCommit, commitRequest{r.plan.Generation, step})
	if err != nil {
		return wire.Commit{}, err
	}
	return wire.DecodeCommit(answer)
}

// protocolLastCommit asks what the newest commit is that came of a lost coordinator: a lastCommitRequest of its substitute, answered
// with a wire.Commit, or nothing where none came.
const protocolLastCommit = "/pnode/lastcommit/1"

type lastCommitRequest struct {
	Generation plan.Generation `json:"generation"`
}

// serveCommits answers other members' commitRequests and lastCommitRequests from now on. The answer to a lastCommitRequest waits
// until this node takes nothing from the lost coordinator any more.
func serveCommits(r requests, commits *pipeline.Commits, state func() consensus.State) {
	r.Serve(protocolLastCommit, func(ctx context.Context, from plan.PeerID, request []byte) ([]byte, error) {
		var q lastCommitRequest
		if err := strict.Decode(request, &q); err != nil {
			return nil, fmt.Errorf("node: last commit request: %w", err)
		}
		ctx, cancel := context.WithTimeout(ctx, substitutePatience)
		defer cancel()
		last, err := commits.Settled(ctx, q.Generation)
		if s := state(); err == nil && (s.Plan.Generation != q.Generation || s.Substitute.Coordinator(s.Plan) != from) {
			err = fmt.Errorf("%s does not coordinate generation %d", s.NameOf(from), q.Generation)
		}
		if err != nil {
			return nil, fmt.Errorf("node: last commit request: %w", err)
		}
		return last, nil
	})
	r.Serve(protocolCommit, func(_ context.Context, _ plan.PeerID, request []byte) ([]byte, error) {
		var q commitRequest
		if err := strict.Decode(request, &q); err != nil {
			return nil, fmt.Errorf("node: commit request: %w", err)
		}
		g, commit, ok := commits.At(q.Step)
		if !ok || g != q.Generation {
			return nil, fmt.Errorf("node: no commit of generation %d step %d here", q.Generation, q.Step)
		}
		return wire.AppendCommit(nil, commit), nil
	})
}
