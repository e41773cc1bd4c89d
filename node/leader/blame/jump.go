package blame

import (
	"fmt"
	"slices"

	"pnode/node/gossip"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

const (
	// jumpWindow is how many steps before it a loss is compared with.
	jumpWindow = 16
	// riseWindow and riseGap are of a rise that takes a few steps: the median of the last riseWindow losses is compared with
	// the jumpWindow ones that end riseGap before them.
	riseWindow, riseGap = 8, 2
	// reach is how many losses are looked at. A good checkpoint is kept of before all of them (consensus.JumpReach).
	reach = jumpWindow + riseGap + riseWindow
	// calmSteps are the first steps of a run, and those after its warm-up, in which no loss counts as a jump.
	calmSteps plan.Step = 20
	// jumpNats, riseNats and jumpDeviations are by how much a loss has to lie above the median of the window: in nats, and
	// in median absolute deviations, whichever is more.
	jumpNats, riseNats = 1.0, 0.5
	jumpDeviations     = 6
	// mostSuspects bounds the members that are left out in turn for one place.
	mostSuspects = 3
	// settleSteps are the steps after a jump that count as the same place.
	settleSteps plan.Step = reach
)

// jumped reports whether consecutive losses end in a jump: the last two are far above the jumpWindow ones before them, or
// the last riseWindow ones, as a whole, above those before: what is wrong in the gradients of early layers alone spoils the loss
// within tens of steps. least is the index of the least loss of those before: what makes the loss rise began after it.
// middle is their median. It is false for too few losses.
func jumped(losses []float64) (least int, middle float64, yes bool) {
	n := len(losses)
	if n >= jumpWindow+2 {
		least, middle, limit := before(losses, n-2, jumpNats)
		if losses[n-2] > limit && losses[n-1] > limit {
			return least, middle, true
		}
	}
	if n >= reach {
		least, middle, limit := before(losses, n-riseWindow-riseGap, riseNats)
		return least, middle, losses[n-1] > limit && median(slices.Clone(losses[n-riseWindow:])) > limit
	}
	return 0, 0, false
}

// before returns the index of the least and the median of the jumpWindow losses before losses[end], and what is far above
// them: by nats, or more where they differ.
func before(losses []float64, end int, nats float64) (least int, middle, limit float64) {
	window := slices.Clone(losses[end-jumpWindow : end])
	for i, x := range window {
		if x < window[least] {
			least = i
		}
	}
	least += end - jumpWindow
	middle = median(window)
	for i, x := range window {
		window[i] = max(x-middle, middle-x)
	}
	return least, middle, middle + max(nats, jumpDeviations*median(window))
}

// median sorts xs.
func median(xs []float64) float64 {
	slices.Sort(xs)
	return (xs[(len(xs)-1)/2] + xs[len(xs)/2]) / 2
}

// Losses follows the losses of the run's steps. A step that is done again takes the place of the first time.
type Losses struct {
	curve []gossip.StepLoss // of consecutive steps
	found jump              // the newest
}

// jump is a step whose loss lies far above those before, and what it was before and after. The loss was least at
// step Least, so the weights after the step before that one are good.
type jump struct {
	Generation  plan.Generation
	Step, Least plan.Step
	From, To    float64
}

// newest returns the position after which losses are new.
func (w *Losses) newest() (plan.Generation, plan.Step) {
	if len(w.curve) == 0 {
		return 0, 0
	}
	last := w.curve[len(w.curve)-1]
	return last.Generation, last.Step
}

// take takes in losses in their order, and finds the newest jump in them. calm is the last step that may do what it
// likes.
func (w *Losses) take(news []gossip.StepLoss, calm plan.Step) {
	for _, l := range news {
		if n := len(w.curve); n > 0 && l.Step != w.curve[n-1].Step+1 {
			keep, found := slices.BinarySearchFunc(w.curve, l.Step, func(have gossip.StepLoss, step plan.Step) int { return int(have.Step) - int(step) })
			if !found { // some are missing between
				keep = 0
			}
			w.curve = w.curve[:keep]
		}
		w.curve = append(w.curve, l)
		w.curve = w.curve[max(0, len(w.curve)-2*reach):]
		losses := make([]float64, len(w.curve))
		for i, at := range w.curve {
			losses[i] = at.Loss
		}
		same := w.found.Generation == l.Generation && l.Step-1 >= w.found.Step && l.Step-1 <= w.found.Step+settleSteps // of a round of local steps all losses come at once
		if least, middle, yes := jumped(losses); yes && l.Step > calm+1 && !same {
			w.found = jump{l.Generation, l.Step - 1, w.curve[least].Step, middle, l.Loss}
		}
	}
}

// ruleOnJump is the rule of what is done about a jump of the loss: the run goes back to a checkpoint of before, and the
// member of the plan that is trusted least is left out for a while, to see whether the loss jumps without it. That is
// done once for a place and a member, with mostSuspects at most, and only forwards: where the same steps jump again
// with all of them left out in turn, the data or the learning rate did it, and the run goes on. So a coordinator that makes losses up, which it can where it has all of them, costs
// the run a few steps and itself its place, again only after new progress. It is not ok where there is nothing to do.
func ruleOnJump(s consensus.State, j jump) (r Ruling, ok bool) {
	if j.Step == 0 || j.Generation != s.Plan.Generation || s.Plan.Generation == 0 {
		return r, false
	}
	r.Blame = consensus.Blame{Kind: plan.LossJump, Step: j.Step, Detail: fmt.Sprintf("the loss jumped from %.2f to %.2f", j.From, j.To)}
	var tried []plan.PeerID // who was left out for this place
	for _, p := range s.Blames {
		if p.Kind != plan.LossJump || j.Step > p.Step+settleSteps {
			continue
		}
		if p.Generation == j.Generation {
			return r, false // it has been told
		}
		r.Again = true
		if p.Until != 0 {
			tried = append(tried, p.Peer)
		}
	}
	least, other := suspect(s, tried)
	if other && len(tried) > 0 && len(tried) < mostSuspects {
		r.Again = false // it jumped without the one before, which is not to blame
	}
	back, kept := checkpointBefore(s, j.Least)
	r.Again = r.Again || !kept
	if r.Again {
		r.Detail += "; the run goes on"
		return r, true
	}
	r.Back = back
	r.Peer, r.Out = least, other
	return r, true
}

// checkpointBefore returns the step of the newest checkpoint of before a step, if one is kept. A run without a checkpoint goes
// back to its beginning.
func checkpointBefore(s consensus.State, step plan.Step) (plan.Step, bool) {
	if s.Checkpoint.Step < step {
		return s.Checkpoint.Step, true
	}
	for _, c := range s.Older {
		if c.Step < step {
			return c.Step, true
		}
	}
	return 0, false
}

// suspect returns the member of the plan that is trusted least: no owner, not tried yet, with the most faults, that
// came last.
func suspect(s consensus.State, tried []plan.PeerID) (least plan.PeerID, ok bool) {
	faults, since := 0, uint64(0)
	for _, m := range s.Members {
		if !s.Plan.Places(m.Peer) || slices.Contains(s.Owners, m.Peer) || slices.Contains(tried, m.Peer) {
			continue
		}
		if !ok || m.Faults > faults || m.Faults == faults && m.Since > since {
			least, faults, since, ok = m.Peer, m.Faults, m.Since, true
		}
	}
	return least, ok
}

// Look takes in the newest losses and returns what is to be done about a jump in them.
func (w *Losses) Look(state consensus.State, losses func(plan.Generation, plan.Step) []gossip.StepLoss) (Ruling, bool) {
	if losses == nil {
		return Ruling{}, false
	}
	w.take(losses(w.newest()), max(calmSteps, state.Run.Train.WarmupSteps+calmSteps))
	return ruleOnJump(state, w.found)
}

// Forget drops the newest jump, on which the log takes no ruling.
func (w *Losses) Forget() { w.found = jump{} }
