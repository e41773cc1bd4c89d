package checkpointer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"pnode/pipeline/wire/strict"
	"pnode/planner/holders"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// copyRequest asks a stage's holder to fetch the chunks of its state from the asking node
// and to keep them until the checkpoint of Step, or a later one, is committed.
type copyRequest struct {
	Generation plan.Generation `json:"generation"`
	Step       plan.Step       `json:"step"`
	Replica    plan.Replica    `json:"replica"`
	Stage      plan.Stage      `json:"stage"`
	Chunks     []plan.Hash     `json:"chunks"`

	own bool // what the replica has for itself, of which nobody is asked for a copy
}

const (
	protocolCopy = "/pnode/copy/1"
	// copyTimeout bounds one copy that something waits for: the end of a plan, or the next checkpoint of a run that says how
	// often. After it the stage is reported with one holder. slowCopyTimeout bounds those that nothing waits for.
	copyTimeout     = time.Minute
	slowCopyTimeout = time.Duration(holders.SlowNanos)
	// planPatience bounds the wait for a plan that is known to follow.
	planPatience = 5 * time.Second
	// logPatience bounds the holder's wait for what the asking node has read of the log already: on a slow disk some entries may have to be
	// written first.
	logPatience = 30 * time.Second
	// storedPatience bounds the wait for the log to know what is stored: after a stop the voters may be gone.
	storedPatience = 10 * time.Second
	// maxWaiting bounds a member's requests that wait for the log here at the same time. It has one for each of its stages: those of more are
	// refused at once, and come with the next checkpoint.
	maxWaiting = 8
)

var (
	errBadCopy = errors.New("checkpointer: bad copy request")
	// errEarly marks a request that the log may allow when this node has read more of it.
	errEarly = errors.New("the log that this node has read does not say so")
)

func decodeCopyRequest(data []byte) (copyRequest, error) {
	var r copyRequest
	if err := strict.Decode(data, &r); err != nil {
		return r, fmt.Errorf("%w: %w", errBadCopy, err)
	}
	if r.Replica < 0 || r.Stage < 0 || len(r.Chunks) > consensus.MaxCheckpointChunks {
		return r, fmt.Errorf("%w: replica %d stage %d with %d chunks", errBadCopy, r.Replica, r.Stage, len(r.Chunks))
	}
	return r, nil
}

// check returns an error unless self is to hold this stage for the asking node. It wraps errEarly where that may change
// with the log: a member is of the next plan, or of a stage whose holder changes.
func (r copyRequest) check(s consensus.State, from, self plan.PeerID) error {
	member, known := s.Member(from)
	switch {
	case r.Generation == s.Plan.Generation+1 && known && member.State != consensus.Gone:
		return fmt.Errorf("%w: generation %d, the current one is %d: %w", errBadCopy, r.Generation, s.Plan.Generation, errEarly)
	case r.Generation != s.Plan.Generation:
		return fmt.Errorf("%w: generation %d, the current one is %d", errBadCopy, r.Generation, s.Plan.Generation)
	case int(r.Replica) >= len(s.Plan.Replicas) || int(r.Stage) >= len(s.Plan.Replicas[r.Replica].Stages):
		return fmt.Errorf("%w: the plan has no replica %d stage %d", errBadCopy, r.Replica, r.Stage)
	case r.Step < s.Checkpoint.Step || r.Step > s.Run.Train.Steps:
		return fmt.Errorf("%w: step %d after the checkpoint of step %d", errBadCopy, r.Step, s.Checkpoint.Step)
	}
	place, holder := s.Plan.At(r.stage()), s.Holder(r.stage())
	switch {
	case s.Substitute.Carrier(place.Peer) != from:
		return fmt.Errorf("%w: replica %d stage %d is not %s's", errBadCopy, r.Replica, r.Stage, from)
	case holder != self:
		return fmt.Errorf("%w: replica %d stage %d is for %s to hold: %w", errBadCopy, r.Replica, r.Stage, holder.Short(), errEarly)
	}
	if r.Step > s.Checkpoint.Step {
		return nil
	}
	var committed []plan.Hash
	for _, l := range s.Checkpoint.Layers {
		if place.Layers.First <= l.Layer && l.Layer < place.Layers.End {
			committed = append(committed, l.Chunks...)
		}
	}
	if !slices.Equal(r.Chunks, committed) {
		return fmt.Errorf("%w: the checkpoint of step %d has other chunks for replica %d stage %d", errBadCopy, r.Step, r.Replica, r.Stage)
	}
	return nil
}

func (r copyRequest) stage() plan.StageID { return plan.StageID{Replica: r.Replica, Stage: r.Stage} }

// pin names the pin of the stage's state, at the worker and at its holder, until the checkpoint
// is committed.
func (r copyRequest) pin() string {
	name := fmt.Sprintf("stage/%d/%d/%d/%d", r.Step, r.Generation, r.Replica, r.Stage)
	if r.own {
		name += ownPin
	}
	return name
}

// ownPin ends the name of a pin of what a replica has for itself.
const ownPin = "/own"

// pinStep returns the step of a pin that copyRequest.pin named.
func pinStep(name string) (plan.Step, bool) {
	var step, generation uint64
	var replica, stage int
	_, err := fmt.Sscanf(name, "stage/%d/%d/%d/%d", &step, &generation, &replica, &stage)
	return plan.Step(step), err == nil
}

// Coming reports whether a pin is of chunks that are being fetched: it comes before them.
func Coming(pin string) bool {
	_, stage := pinStep(pin)
	return stage || pin == wholePin
}

// Answers to a copyRequest: its copy was given up because another plan is to follow, or the chunks did not come from the asking node. An empty
// answer says that the copy is durable.
const (
	copyEnded  = "another plan is to follow"
	copyUnsent = "the chunks do not come"
)

// hold answers a copyRequest. It returns when the copy is durable, or not to be made any more.
func (c *Checkpointer) hold(ctx context.Context, from plan.PeerID, request []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, slowCopyTimeout)
	defer cancel()
	r, err := decodeCopyRequest(request)
	if err != nil {
		return nil, err
	}
	if err := c.await(ctx, r, from); err != nil {
		return nil, err
	}
	// The pin comes first: it keeps what has arrived when the fetch is taken up again.
	if err := c.Store.Pin(r.pin(), r.Chunks); err != nil {
		return nil, err
	}
	fetching, free := c.untilPause(ctx, r, from, slowCopyTimeout)
	defer free()
	err = c.Fetcher.Ensure(fetching, r.Chunks, []plan.PeerID{from})
	if errors.Is(context.Cause(fetching), errPaused) {
		return []byte(copyEnded), nil
	}
	if errors.Is(err, ErrNoChunks) {
		c.Log.Info("a copy does not get here", "step", r.Step, "from", from, "cause", err)
		return []byte(copyUnsent), nil
	}
	if err == nil {
		err = c.Store.Settle(r.Chunks) // a stage here may have the same ones in memory
	}
	return nil, err
}

// await is check for as long as the log may be behind here that the asking node has read. Of one that has too many such requests it is
// check alone.
func (c *Checkpointer) await(ctx context.Context, r copyRequest, from plan.PeerID) error {
	err := r.check(c.Consensus.State(), from, c.Self)
	if !errors.Is(err, errEarly) || !c.waiting.begin(from) {
		return err
	}
	defer c.waiting.end(from)
	ctx, stop := context.WithTimeout(ctx, logPatience)
	defer stop()
	_ = consensus.Await(ctx, c.Consensus, func(now consensus.State) bool {
		err = r.check(now, from, c.Self)
		return !errors.Is(err, errEarly)
	})
	return err
}

// waiting counts the requests of each member that wait for the log. The zero value is ready to use. Its methods may be called concurrently.
type waiting struct {
	mu sync.Mutex
	of map[plan.PeerID]int // guarded by mu
}

// begin counts one more of a member, until end; false where maxWaiting do.
func (w *waiting) begin(p plan.PeerID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.of[p] >= maxWaiting {
		return false
	}
	if w.of == nil {
		w.of = map[plan.PeerID]int{}
	}
	w.of[p]++
	return true
}

func (w *waiting) end(p plan.PeerID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.of[p]--; w.of[p] == 0 {
		delete(w.of, p)
	}
}
