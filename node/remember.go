package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"pnode/node/api"
	"pnode/planner/plan"
	"pnode/swarm/twofold"
)

// The losses of a run are remembered, thinned out, beyond the life of a process: each node
// keeps them in its folder, and one that was not there from the beginning asks another.

const (
	protocolLosses = "/pnode/losses/1"
	// lossesFile is in a node's folder.
	lossesFile = "losses.json"
	// keepLossesEvery is how much of the curve a crash may cost.
	keepLossesEvery = 30 * time.Second
	// lossesTries is how often a node that comes asks the others, askLossesEvery the time
	// between two rounds.
	lossesTries    = 5
	askLossesEvery = 5 * time.Second
)

// recallLosses takes in what this folder's node knew before.
func (n *Node) recallLosses() {
	l, err := twofold.Read(n.dir, lossesFile, api.MaxLossesBytes, api.DecodeLosses)
	if err == nil {
		n.hub.Recall(l)
	} else if !errors.Is(err, fs.ErrNotExist) {
		n.log.Warn("the loss curve begins anew", "cause", err)
	}
}

// keepLosses writes the losses down now and then, and when ctx ends.
func (n *Node) keepLosses(ctx context.Context) {
	tick := time.NewTicker(keepLossesEvery)
	defer tick.Stop()
	for kept := uint64(0); ; {
		done := false
		select {
		case <-tick.C:
		case <-ctx.Done():
			done = true
		}
		if h := n.hub.History(); h.Seq != kept && h.Train.Points != nil {
			if err := saveJSON(n.dir, lossesFile, h.Losses); err != nil {
				n.log.Warn("keep the loss curve", "cause", err)
			}
			kept = h.Seq
		}
		if done {
			return
		}
	}
}

// serveLosses begins to tell members the losses so far.
func (n *Node) serveLosses() {
	n.requests.Serve(protocolLosses, func(context.Context, plan.PeerID, []byte) ([]byte, error) {
		return json.Marshal(n.hub.History().Losses)
	})
}

// learnLosses asks for the losses that this node was not there for, until one that has some
// has told.
func (n *Node) learnLosses(ctx context.Context) {
	tick := time.NewTicker(askLossesEvery)
	defer tick.Stop()
	for range lossesTries {
		others := slices.DeleteFunc(n.living(), func(p plan.PeerID) bool { return p == n.self })
		for _, p := range others[:min(len(others), mostAsked)] {
			some, err := n.askLosses(ctx, p)
			if some {
				return
			}
			if err != nil {
				n.log.Debug("ask for losses", "cause", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (n *Node) askLosses(ctx context.Context, p plan.PeerID) (some bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, readStepsTimeout)
	defer cancel()
	reply, err := n.requests.Ask(ctx, p, protocolLosses, struct{}{})
	if err != nil {
		return false, err
	}
	l, err := api.DecodeLosses(reply)
	if err != nil {
		return false, fmt.Errorf("node: losses of %s: %w", p, err)
	}
	n.hub.Recall(l)
	return len(l.Train.Points) > 0, nil
}
