package monitor

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"pnode/checkpoint"
	"pnode/node/api"
	"pnode/node/gossip"
	"pnode/planner/plan"
	"pnode/swarm/twofold"
)

const (
	protocolLosses = "/pnode/losses/1"
	// LossesFile keeps the loss curves in a node's folder.
	LossesFile = "losses.json"
	// keepLossesEvery is how much of the curves a crash may cost.
	keepLossesEvery = 30 * time.Second
	// A node that comes asks the others lossesTries times, every askLossesEvery.
	lossesTries    = 5
	askLossesEvery = 5 * time.Second
)

// KeepLosses writes the loss curves down every keepLossesEvery, and when ctx ends. A write that fails is logged once, and tried again.
func (m *Monitor) KeepLosses(ctx context.Context) {
	tick := time.NewTicker(keepLossesEvery)
	defer tick.Stop()
	for kept, failed, done := uint64(0), false, false; !done; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			done = true
		}
		h := m.History()
		if h.Seq == kept || h.Train.Points == nil {
			continue
		}
		err := keepLosses(m.Dir, h.Losses)
		if err == nil {
			kept = h.Seq
		} else if !failed {
			m.Log.Warn("no loss curves are written down here: training goes on, they are tried again every 30 s, and other nodes have them", "cause", err)
		}
		failed = err != nil
	}
}

func keepLosses(dir string, l api.Losses) error {
	data, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return err
	}
	room := checkpoint.RoomAt(dir)
	return room.Explain(twofold.Write(dir, LossesFile, append(data, '\n')), int64(2*len(data)))
}

// LearnLosses asks for the losses that this node was not there for, until a node that has some
// has answered.
func (m *Monitor) LearnLosses(ctx context.Context) {
	tick := time.NewTicker(askLossesEvery)
	defer tick.Stop()
	for range lossesTries {
		learned := m.askEach(ctx, m.Living(), func(ctx context.Context, p plan.PeerID) (some bool, err error) {
			reply, err := m.Peers.Ask(ctx, p, protocolLosses, struct{}{})
			if err != nil {
				return false, err
			}
			l, err := api.DecodeLosses(reply)
			if err != nil {
				return false, fmt.Errorf("monitor: losses of %s: %w", p, err)
			}
			m.Recall(l)
			return len(l.Train.Points) > 0, nil
		})
		if learned {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Losses returns the losses of the logged steps after one of a generation.
func (m *Monitor) Losses(after plan.Generation, step plan.Step) (losses []gossip.StepLoss) {
	m.steps.with(func(l *stepLog) {
		for _, e := range l.since(position{after, step}) {
			losses = append(losses, gossip.StepLoss{Generation: e.Generation, Step: e.Step, Loss: e.Loss})
		}
	})
	return losses
}
