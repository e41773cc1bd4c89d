package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"pnode/pipeline/wire/strict"
	"pnode/planner/plan"
	"pnode/swarm"
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
}

const (
	protocolCopy = "/pnode/copy/1"
	// copyTimeout bounds one copy: without it the stage is reported with one holder.
	copyTimeout = time.Minute
	// planPatience is how long a holder waits for a plan that the asking node has already.
	planPatience = 5 * time.Second
)

var errBadCopy = errors.New("node: bad copy request")

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

// fits tells whether the request is what the plan gives this node to hold.
func (r copyRequest) fits(s consensus.State, from, self plan.PeerID) error {
	switch {
	case r.Generation != s.Plan.Generation:
		return fmt.Errorf("%w: generation %d, the current one is %d", errBadCopy, r.Generation, s.Plan.Generation)
	case r.Step <= s.Checkpoint.Step || r.Step > s.Run.Train.Steps:
		return fmt.Errorf("%w: step %d after the checkpoint of step %d", errBadCopy, r.Step, s.Checkpoint.Step)
	case int(r.Replica) >= len(s.Plan.Replicas) || int(r.Stage) >= len(s.Plan.Replicas[r.Replica].Stages):
		return fmt.Errorf("%w: the plan has no replica %d stage %d", errBadCopy, r.Replica, r.Stage)
	}
	if place := s.Plan.Replicas[r.Replica].Stages[r.Stage]; place.Peer != from || place.Holder != self {
		return fmt.Errorf("%w: replica %d stage %d is not %s's for this node to hold", errBadCopy, r.Replica, r.Stage, from)
	}
	return nil
}

// serveCopies begins to answer the copy requests of members.
func (n *Node) serveCopies() {
	n.swarm.Handle(protocolCopy, func(ctx context.Context, from plan.PeerID, s swarm.Stream) {
		_ = s.SetReadDeadline(time.Now().Add(requestTimeout)) // a stream that cannot ends at once
		err := answer(s, func(request []byte) ([]byte, error) {
			return nil, n.keeper.keepCopy(ctx, from, request)
		})
		if err != nil {
			n.log.Debug("copy request", "from", from, "cause", err)
		}
	})
}

// keepCopy answers a copyRequest of an admitted peer: it returns when the copy is durable.
func (k *keeper) keepCopy(ctx context.Context, from plan.PeerID, data []byte) error {
	ctx, cancel := context.WithTimeout(ctx, copyTimeout)
	defer cancel()
	r, err := decodeCopyRequest(data)
	if err != nil {
		return err
	}
	k.awaitGeneration(ctx, r.Generation)
	if err := r.fits(k.log.State(), from, k.self); err != nil {
		return err
	}
	// The pin comes first: it keeps what has arrived when the fetch is taken up again.
	if err := k.store.Pin(pinName(r.Generation, r.Step, r.Replica, r.Stage), r.Chunks); err != nil {
		return err
	}
	return k.chunks.ensure(ctx, r.Chunks, []plan.PeerID{from})
}

// awaitGeneration waits a little for a plan that has not come here yet.
func (k *keeper) awaitGeneration(ctx context.Context, g plan.Generation) {
	ctx, cancel := context.WithTimeout(ctx, planPatience)
	defer cancel()
	for {
		changed := k.log.Changed()
		if k.log.State().Plan.Generation >= g {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
