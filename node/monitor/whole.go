package monitor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"pnode/node/api"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// wholeView holds what a node knows of where the whole model is.
type wholeView struct {
	State  consensus.State
	Self   plan.PeerID
	Copies map[plan.PeerID]plan.WholeCopy
	// Ages are how long ago checkpoints were saved, by step, as far as it is known here.
	Ages map[plan.Step]time.Duration
}

// where says where all layers of the newest possible checkpoint are: with an owner if one has them. It is nil before the
// first checkpoint.
func (v wholeView) where() *api.Whole {
	newest := v.State.Checkpoint.Step
	if newest == 0 {
		return nil
	}
	var best plan.PeerID
	var notes []string
	off := true
	for _, m := range v.State.Members {
		c, owner := v.Copies[m.Peer], v.State.Owner(m.Peer)
		if v.step(m.Peer) > 0 && (best == "" || v.better(m.Peer, best)) {
			best = m.Peer
		}
		if m.State == consensus.Gone {
			continue // what it said of work under way says nothing of now
		}
		if owner && c.Why != "" {
			notes = append(notes, fmt.Sprintf("%s cannot keep it: %s", v.name(m.Peer), c.Why))
		}
		if c.Next > 0 && c.SizeBytes > 0 {
			notes = append(notes, fmt.Sprintf("step %d is on its way to %s: %.0f%% of %s", c.Next, v.name(m.Peer), 100*float64(c.DoneBytes)/float64(c.SizeBytes), plan.Size(c.SizeBytes)))
		}
		off = off && (c.Off || !owner)
	}
	text := "no node has all layers of a checkpoint yet"
	if c, ok := consensus.NewestWhole(v.State); ok && len(c.Layers) > 0 {
		text = fmt.Sprintf("no node has all layers of a checkpoint yet: those of step %d are with several nodes", c.Step)
	}
	switch {
	case best != "":
		step := v.step(best)
		text = fmt.Sprintf("whole on %s at step %d", v.name(best), step)
		if v.gone(best) {
			text = fmt.Sprintf("whole on %s, which is gone, at step %d, and on nobody who is here", v.name(best), step)
		}
		if age, known := v.Ages[step]; known {
			text += fmt.Sprintf(", saved %s ago", plan.Duration(age.Round(time.Second)))
		}
		if step < newest {
			text += fmt.Sprintf("; the newest checkpoint, of step %d, is with several nodes", newest)
		}
	case off && slices.ContainsFunc(v.State.Owners, func(o plan.PeerID) bool { return v.Copies[o].Off }):
		text = "its layers are with several nodes: owners' keep no whole one (--keep-whole off)"
	}
	w := &api.Whole{Step: v.step(best), Text: strings.Join(append([]string{text}, notes...), "; ")}
	if best != "" {
		w.On = v.name(best)
	}
	return w
}

// step returns the newest checkpoint that a member has whole, as it says or as the log knows before; 0 for none.
func (v wholeView) step(p plan.PeerID) plan.Step {
	lacks := func(l consensus.LayerRef) bool { return !l.StoredBy(p) }
	for _, c := range consensus.Checkpoints(v.State) {
		if len(c.Layers) > 0 && !slices.ContainsFunc(c.Layers, lacks) {
			return max(c.Step, v.Copies[p].Step)
		}
	}
	return v.Copies[p].Step
}

// better prefers who lives, then owners, then the newer copy.
func (v wholeView) better(a, b plan.PeerID) bool {
	if v.gone(a) != v.gone(b) {
		return v.gone(b)
	}
	if v.State.Owner(a) != v.State.Owner(b) {
		return v.State.Owner(a)
	}
	return v.step(a) > v.step(b)
}

func (v wholeView) gone(p plan.PeerID) bool {
	m, known := v.State.Member(p)
	return !known || m.State == consensus.Gone
}

func (v wholeView) name(p plan.PeerID) string {
	if p == v.Self {
		return "this node"
	}
	return v.State.NameOf(p)
}
