package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"pnode/node/leader"

	"pnode/node/api"
	"pnode/node/gossip"
	"pnode/pipeline/wire/strict"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// A node without a part in the plan reads the steps in the chronicle of one that has: its
// heartbeat says that there are new ones. So every node tells the same steps with the same
// losses, whoever computes them.

const (
	protocolSteps = "/pnode/steps/1"
	// readStepsTimeout bounds asking one node.
	readStepsTimeout = 3 * time.Second
	// stepsPatience bounds how long steps are held back for older ones that nobody tells.
	stepsPatience = 5 * time.Second
	// mostAsked are how many nodes are asked in one round.
	mostAsked = 8
)

var errBadSteps = errors.New("node: bad list of steps")

// decodeSteps reads a chronicle's answer: at most maxChronicle steps in the order of their
// places.
func decodeSteps(data []byte) ([]api.Event, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return nil, fmt.Errorf("%w: no list", errBadSteps)
	}
	var events []api.Event
	for d.More() {
		var e api.Event
		if err := d.Decode(&e); err != nil {
			return nil, fmt.Errorf("%w: %w", errBadSteps, err)
		}
		switch n := len(events); {
		case n == maxChronicle:
			return nil, fmt.Errorf("%w: more than %d", errBadSteps, maxChronicle)
		case e.Kind != api.KindStep || e.Message != "":
			return nil, fmt.Errorf("%w: an event of another kind", errBadSteps)
		case n > 0 && placeOf(events[n-1]).compare(placeOf(e)) >= 0:
			return nil, fmt.Errorf("%w: step %d of generation %d is out of order", errBadSteps, e.Step, e.Generation)
		}
		events = append(events, e)
	}
	if _, err := d.Token(); err != nil {
		return nil, fmt.Errorf("%w: %w", errBadSteps, err)
	}
	return events, nil
}

// serveSteps begins to tell members the steps that are newer than a place.
func (n *Node) serveSteps() {
	n.requests.Serve(protocolSteps, func(_ context.Context, _ plan.PeerID, request []byte) ([]byte, error) {
		var p place
		if err := strict.Decode(request, &p); err != nil {
			return nil, fmt.Errorf("%w: %w", errBadSteps, err)
		}
		return json.Marshal(n.progress.after(p))
	})
}

// followSteps reads the steps that this node's own workers do not tell, until ctx ends.
func (n *Node) followSteps(ctx context.Context) {
	var owing time.Time // since when older steps are waited for
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.beats.News():
		}
		if state := n.raft.State(); n.lacksSteps(state) {
			n.readSteps(ctx, state)
		}
		switch now := time.Now(); {
		case !n.progress.owes():
			owing = time.Time{}
		case owing.IsZero():
			owing = now
		case now.Sub(owing) > stepsPatience:
			n.progress.giveUp()
		}
	}
}

// lacksSteps tells whether others know steps that this node's workers will not tell.
func (n *Node) lacksSteps(state consensus.State) bool {
	told := place{state.Plan.Generation, n.beats.Newest(state.Plan.Peers(), state.Plan.Generation)}
	if told.Step <= state.Plan.Start {
		return n.progress.owes()
	}
	belongs := n.belongs(state)
	return n.progress.lacks(told, !belongs, belongs && state.Plan.Places(n.self))
}

// readSteps asks for the steps after this node's newest: those who compute them first.
func (n *Node) readSteps(ctx context.Context, state consensus.State) {
	peers := append([]plan.PeerID{state.Plan.Coordinator().Peer}, state.Plan.Peers()...)
	asked := []plan.PeerID{n.self, ""}
	for _, p := range append(peers, n.living()...) {
		if slices.Contains(asked, p) || len(asked) > mostAsked {
			continue
		}
		asked = append(asked, p)
		if n.readStepsOf(ctx, p) && !n.lacksSteps(state) {
			return
		}
	}
}

// readStepsOf asks one node and tells whether it answered.
func (n *Node) readStepsOf(ctx context.Context, p plan.PeerID) bool {
	ctx, cancel := context.WithTimeout(ctx, readStepsTimeout)
	defer cancel()
	reply, err := n.requests.Ask(ctx, p, protocolSteps, n.progress.end())
	var events []api.Event
	if err == nil {
		events, err = decodeSteps(reply)
	}
	if err != nil {
		n.log.Debug("read steps", "cause", err)
		return false
	}
	n.progress.told(events)
	return true
}

// lastSteps reads what the run did up to its newest checkpoint and this node has not told
// yet, before it stops.
func (n *Node) lastSteps(ctx context.Context, state consensus.State) {
	ctx, cancel := context.WithTimeout(ctx, stepsPatience)
	defer cancel()
	tick := time.NewTicker(gossip.Every / 4)
	defer tick.Stop()
	for n.progress.begun() && n.progress.end().Step < state.Checkpoint.Step && ctx.Err() == nil {
		n.readSteps(ctx, state)
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	n.progress.giveUp()
}

// planGivenUp tells, on a node without a part in the plan, whether nobody goes on with it:
// one of its nodes says so, or is silent since a time.
func (n *Node) planGivenUp(state consensus.State, since, now time.Time) bool {
	peers := state.Plan.Peers()
	if slices.Contains(peers, n.self) {
		return false
	}
	silent := func(p plan.PeerID) bool { return n.beats.Silent(p, since, now) > leader.DeadAfter }
	return n.beats.Stalled(peers, state.Plan.Generation, now).For > 0 || slices.ContainsFunc(peers, silent)
}
