package simulate

import "pnode/planner/holders"

// pnode does what this program does: see "A node dies" and "Leaving" in docs/recovery.md, and node/leader.
type pnode struct{}

func (pnode) Name() string { return "pnode" }

func (pnode) Habits(Constants, Facts) Habits { return Habits{UsefulPermille: 1000, HeedsNotices: true} }

// Saves copies checkpoints in the background, as often as package holders says where steps lose no more by them than it assumes.
func (pnode) Saves(_ Constants, f Facts, losses holders.Rate) Saving {
	every := holders.Checkpoint{StateBytes: f.SaveBytes, TookNanos: f.CopyNanos}.Cadence(losses).EveryNanos
	return Saving{EveryNanos: every - f.CopyNanos, TookNanos: f.CopyNanos, AtChange: true}
}

const (
	// longestCatchUp is for how long steps wait for a machine that computes earlier ones again, or for stepsCatchUp steps
	// where those take longer: node/leader's rule.
	longestCatchUp = 15 * second
	stepsCatchUp   = 5
)

// Lost has another machine go on in the place of one, from memory or from the newest checkpoint. Else the step is given up, and
// what nobody has in memory is computed again from the checkpoint and kept messages; without that the run goes back.
func (pnode) Lost(c Constants, l Loss) Answer {
	notice := c.NoticedNanos + c.AgreedNanos
	if l.InStep && l.Machines == 1 && !l.Carried && l.Whole {
		replay := l.Since * l.BusyNanos
		switch {
		case l.Donor && c.gives(l):
		case l.Donor:
			return Answer{Extends: l.carry(notice+c.LoadedNanos, l.DonorNanos)}
		case l.Stored && replay <= max(longestCatchUp, stepsCatchUp*l.StepNanos):
			return Answer{Extends: l.carry(notice+c.LoadedNanos+replay, l.BusyNanos)}
		}
	}
	a := Answer{Ends: true, StopNanos: notice + l.PassNanos + c.SalvagedNanos + c.given(l)}
	switch {
	case l.InMemory:
	case l.Stored:
		a.StopNanos += l.Since * l.BusyNanos
	default:
		a.Back, a.Older = true, true
	}
	return a
}

// giveUpStop is by how much steps are believed to stop for longer where a step is given up: node/leader's constant.
const giveUpStop = 3 * second

// gives reports whether a step is given up although another machine has the lost one's layers in memory: node/leader's rule, without
// the time until a loss is noticed.
func (c Constants) gives(l Loss) bool {
	if l.Machines >= l.Of {
		return false
	}
	fewer := mulDiv(l.StepNanos, int64(l.Machines), int64(l.Of-l.Machines))
	own := l
	own.BusyNanos = l.DonorNanos
	return own.carry(0, l.DonorNanos) > l.ElapsedNanos+c.given(l)+fewer+giveUpStop
}

// carry returns how much longer a step takes where a machine does a lost one's part of all of it beside its own, from some
// time after the loss on.
func (l Loss) carry(after, ownNanos int64) int64 {
	left := ownNanos - mulDiv(ownNanos, l.ElapsedNanos, max(l.StepNanos, 1))
	ends := l.ElapsedNanos + max(max(0, left), after) + l.BusyNanos
	return max(0, ends-max(l.StepNanos, l.ElapsedNanos))
}

// Change saves all stages, since a plan starts from a complete checkpoint, and loads what moves: parameters before the first step,
// and moments, which are two thirds of the state, while that computes.
func (pnode) Change(c Constants, f Facts, moveNanos int64) int64 {
	moments := mulDiv(c.move(moveNanos), 2, 3)
	return c.change() + c.save(f.SaveBytes) + c.move(moveNanos) - min(moments, f.StepNanos)
}
