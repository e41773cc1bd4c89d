package node

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"pnode/checkpoint"
	"pnode/node/api"
	"pnode/node/checkpointer"
	"pnode/node/config"
	"pnode/node/gossip"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// custody says what this node keeps of the run's model, for its owners and for local commands.
type custody struct {
	mode       string        // config.Config.KeepWhole
	idle       bool          // the devices here compute nothing
	owners     []plan.PeerID // at the start before
	unsettled  bool          // no owner was known to have the finished model then
	extends    plan.Step     // the later end that this start gives the run; 0 leaves it
	whole      *checkpointer.Whole
	heartbeats *gossip.Tracker
	known      func() (state consensus.State, returning bool) // as monitor.Monitor.Known
	readers    leases
	asked      atomic.Bool   // by KeepWhole, since the start
	wanted     chan struct{} // has whole look again
}

// keeps reports whether this node is to have the newest checkpoint of a run whole: it was asked to, or is an owner's.
// Once the run is finished the plan's coordinator stands in for owners that are away.
func (c *custody) keeps(state consensus.State) bool {
	switch {
	case c.mode == config.KeepOn || c.asked.Load():
		return true
	case c.mode == config.KeepOff || c.idle:
		return false
	}
	return state.Owner(c.whole.Self) || slices.Contains(c.owners, c.whole.Self) || state.Finished && state.Plan.Generation != 0 && state.Substitute.Coordinator(state.Plan) == c.whole.Self
}

// KeepWhole has this node keep the newest checkpoint whole from now on, and returns how far that is.
func (c *custody) KeepWhole() (api.Keeping, error) {
	state := c.whole.Consensus.State()
	if state.Run == nil || state.Checkpoint.Step == 0 {
		return api.Keeping{}, errNothingSaved
	}
	if !c.asked.Swap(true) {
		select {
		case c.wanted <- struct{}{}:
		default: // it looks anyway
		}
	}
	return api.Keeping{Newest: state.Checkpoint.Step, Copy: c.whole.Copy()}, nil
}

// awaits reports whether this node has something to do in a run that was finished at a step: it is to have the model
// and lacks it, or to hand its layers on.
func (c *custody) awaits(step plan.Step) bool {
	return c.unsettled || c.extends > step || c.keeps(c.whole.Consensus.State()) && !checkpointer.HasWhole(c.whole.Store, step)
}

// steps returns the replaced checkpoints that stay: those that this node or an owner is about to have whole.
func (c *custody) steps() []plan.Step {
	own := c.whole.Copy()
	steps := []plan.Step{own.Step, own.Next}
	for _, o := range c.whole.Consensus.State().Owners {
		steps = append(steps, c.heartbeats.Whole(o).Next)
	}
	return append(steps, c.readers.steps(time.Now())...)
}

// tellRoom warns where this node is to keep the run's model whole and its disk has no room for that.
func (c *custody) tellRoom(state consensus.State, notice func(string)) {
	if !c.keeps(state) {
		return
	}
	size := checkpointer.WholeBytes(*state.Run)
	if err := c.whole.Store.Fits(2*size, 0); errors.Is(err, checkpoint.ErrDiskFull) {
		notice(fmt.Sprintf("warning: no room here for the whole model: a checkpoint with all layers has %s, and while the next one comes both are kept. "+
			"Free space, or name a folder on another disk with --dir, or have another machine keep it (`pnode join INVITE --keep-whole`): %v", plan.Size(size), err))
	}
}

// changing reports whether a plan is about to begin: the one before has ended for it, or it has made no step.
func (c *custody) changing(state consensus.State) bool {
	if state.Run == nil || state.StopWanted || state.Finished || state.Checkpoint.Step >= state.Run.Train.Steps {
		return false
	}
	begins := state.Plan.Start > 0 && state.Plan.Start == state.Checkpoint.Step && c.heartbeats.Newest(state.Plan, time.Now()) <= state.Plan.Start
	return state.Ended() || begins
}

// leases are the checkpoints that local commands read just now.
type leases struct {
	mu    sync.Mutex // guards until
	until map[plan.Step]time.Time
}

// leaseTime is how long a checkpoint stays after a command has read of it.
const leaseTime = time.Minute

// renew keeps a step's checkpoint for leaseTime from now on.
func (l *leases) renew(step plan.Step, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.until == nil {
		l.until = map[plan.Step]time.Time{}
	}
	l.until[step] = now.Add(leaseTime)
}

// steps returns the steps whose checkpoints are read, and forgets those that are not any more.
func (l *leases) steps(now time.Time) []plan.Step {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.until, func(_ plan.Step, until time.Time) bool { return now.After(until) })
	return slices.Sorted(maps.Keys(l.until))
}
