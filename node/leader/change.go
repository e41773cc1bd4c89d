package leader

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"pnode/node/leader/blame"
	"pnode/planner/plan"
)

const (
	// stallGrace is the first patience with a generation that was given up: a lost peer may show
	// before the same members are planned again.
	stallGrace = 3 * time.Second
	// lackingPlans bounds the plans that fail for want of a checkpoint's chunks before the run
	// goes back to an older checkpoint.
	lackingPlans = 3
	// copyPatience bounds how long a change that can wait does so for copies of checkpoints that are under way.
	copyPatience = 2 * time.Minute
	// enterPatience bounds how long such a change, and the first plan, wait for members that are entering: each would be followed by another one.
	enterPatience = 10 * time.Second
	// A member that alone held a layer is waited for at least leastReturn and at most mostReturn. One that computes it again is waited for as
	// long, or for as long as it takes to do the steps again, if that is longer: that is mostRedo at most.
	leastReturn = 5 * time.Second
	mostReturn  = time.Minute
	mostRedo    = 10 * time.Minute
	// anew says what is left to do where nobody will come back with what is lost.
	anew = "If none is left, train again: `pnode train --dir NEW`, from step 0 with the settings of before or from a model of yours with --init"
	// hastyPlans bounds the plans without a new checkpoint between them that follow a ruling at once.
	hastyPlans = 8
)

// first waits for the nodes and devices that the run wants to begin with, and then plans.
func (v view) first() (verdict, bool) {
	active, devices := v.active()
	switch need := max(1, v.MinNodes); {
	case v.Plan.Generation != 0:
		return verdict{}, false
	case active == 0:
		return verdict{Blocked: "the run begins once a node has measured itself"}, true
	case active < need:
		return verdict{Blocked: fmt.Sprintf("%d of %s joined: waiting until more start or join; %s", active, plan.Count(need, "node"), howToJoin(v.Owners, v.Names))}, true
	case devices < v.MinDevices:
		return verdict{Blocked: fmt.Sprintf("%d of %s joined: waiting until more start or join; %s", devices, plan.Count(v.MinDevices, "device"), howToJoin(v.Owners, v.Names))}, true
	case v.entering():
		return verdict{Blocked: fmt.Sprintf("waiting up to %s for members that are entering, so that the first plan has them", plan.Duration(enterPatience))}, true
	}
	return verdict{Plan: true, Why: "first plan"}, true
}

// howToJoin says what prints an invite, and on which machine.
func howToJoin(owners []plan.PeerID, names map[plan.PeerID]string) string {
	machine := "the machine that began the run"
	for _, owner := range owners {
		if name := names[owner]; name != "" {
			machine = name
			break
		}
	}
	return fmt.Sprintf("`pnode invite` on %s prints how others join", machine)
}

// rolledBack plans from the checkpoint that the run went back to.
func (v view) rolledBack() (verdict, bool) {
	why := fmt.Sprintf("nobody who is up has all of the checkpoint of step %d", v.Plan.Start)
	return verdict{Plan: true, Why: why}, v.Checkpoint < v.Plan.Start
}

// orphaned goes back to an older checkpoint where those that had the newest one left, and no step shows that others have it. It waits for a
// member that computes what is lost again.
func (v view) orphaned() (verdict, bool) {
	if begun := v.Checkpoint != v.Plan.Start || v.Newest > v.Plan.Start; !v.Orphaned || begun || v.Stall.Fallback == 0 {
		return verdict{}, false
	}
	why := fmt.Sprintf("who had the checkpoint of step %d left before others had all of it", v.Checkpoint)
	if v.restoring() {
		return verdict{Blocked: fmt.Sprintf("%s: %s computes it again from step %d on", why, v.nameOf(v.Restorer), v.RestoredFrom)}, true
	}
	return verdict{Rollback: v.Stall.Fallback, Why: why}, true
}

// unheld waits for a member to come back that alone held a layer of the newest checkpoint. It waits about as long as it takes to do
// the steps since an older checkpoint again, and then goes back to that: so the run loses at most twice what it would if it
// were known who comes back (Karlin et al. 1988, "Competitive snoopy caching", the choice between renting and buying). A member that
// computes the layer again meanwhile is waited for, too.
func (v view) unheld() (verdict, bool) {
	if !v.broken() || v.Unheld == nil {
		return verdict{}, false
	}
	waits := min(max(v.RedoTime, leastReturn), mostReturn)
	lost := fmt.Sprintf("nobody who is up has layer %d of the checkpoint of step %d, which %s had", v.Unheld.Layer, v.Checkpoint, v.names(v.Unheld.Holders, "and"))
	switch {
	case v.restoring():
		return verdict{Blocked: fmt.Sprintf("%s: %s computes it again from step %d on", lost, v.nameOf(v.Restorer), v.RestoredFrom)}, true
	case v.Stall.Fallback == 0 && v.BrokenFor <= waits:
		return verdict{Blocked: lost + ", and no older one is whole here: waiting for a node that holds a copy"}, true
	case v.Stall.Fallback == 0:
		return verdict{Blocked: lost + ", and no older one is whole here; start a node that holds a copy. " + anew}, true
	case v.BrokenFor <= waits:
		return verdict{Blocked: fmt.Sprintf("%s: if it is not back within %s, the run goes back to step %d", lost, plan.Duration(waits.Round(time.Second)), v.Stall.Fallback)}, true
	}
	return verdict{Rollback: v.Stall.Fallback, Why: lost}, true
}

// names returns what people call some peers, with a word between: and, or.
func (v view) names(peers []plan.PeerID, word string) string {
	var names []string
	for _, p := range peers {
		names = append(names, v.nameOf(p))
	}
	return strings.Join(names, " "+word+" ")
}

// givenUp plans again when patience is over. Where chunks are lacking that nobody brings, the
// run goes back to an older checkpoint first.
func (v view) givenUp() (verdict, bool) {
	s := v.Stall
	if s.For <= 0 {
		return verdict{}, false
	}
	found, ok := blame.Judge(v.Trial)
	ok = ok && !v.Ruled
	again := verdict{Plan: true, Why: "a member gave the generation up: " + s.Why}
	switch lacks := s.Lacks && (s.Alone || s.Plans >= lackingPlans && !ok); {
	case lacks && s.Fallback > 0:
		return verdict{Rollback: s.Fallback, Why: fmt.Sprintf("nobody who is up has all of the checkpoint of step %d", v.Checkpoint)}, true
	case lacks:
		return verdict{Blocked: fmt.Sprintf("nobody who is up has all of the checkpoint of step %d, and no older one is whole here; start a node that holds a copy. %s", v.Checkpoint, anew)}, true
	case v.Ruled && s.Plans < hastyPlans:
		return again, true
	case s.For <= s.Patience && v.together():
		again.Again = true
		return again, true
	case s.For <= s.Patience:
		return verdict{}, true
	case ok:
		return verdict{Rule: found}, true
	}
	return again, true
}

// together reports whether all members of a plan that made steps have said that it has ended for them, and have had the time to show
// who cannot reach whom: nobody is waited for, and all can go on where they were.
func (v view) together() bool {
	got := max(v.Checkpoint, v.Newest) > v.Plan.Start
	away := func(p plan.PeerID) bool { return !slices.Contains(v.Stall.By, p) }
	return got && v.Stall.For > showTime && !slices.ContainsFunc(v.Plan.Peers(), away)
}

// change has the newest step saved and plans then, where another plan is wanted and this one goes on.
func (v view) change() (verdict, bool) {
	switch why, canWait := v.wanted(); {
	case why == "":
		return verdict{}, false
	case !v.Paused && canWait && (v.Copying && v.CopiesFor <= copyPatience || v.entering()):
		if lost, ok := v.suspected(); ok {
			return lost, true
		}
		return verdict{Prepare: true, Why: why}, true
	case !v.Paused:
		return verdict{Pause: true, Why: why}, true
	case v.Saved:
		return verdict{Plan: true, Why: why}, true
	case v.PausedFor > v.SavePatience: // a member does not save, or says that there is more to save
		return verdict{Plan: true, Why: why + "; the newest step was not saved in time"}, true
	}
	return verdict{}, true // the save is under way
}

// wanted returns why another plan is wanted, the most urgent reason first, and whether that can wait for copies; empty where none
// is.
func (v view) wanted() (why string, canWait bool) {
	switch leaver := v.leaver(); {
	case leaver != "":
		return fmt.Sprintf("%s is leaving", v.nameOf(leaver)), false
	case v.Carried.Lost != "":
		return fmt.Sprintf("%s is gone, and %s computes its part", v.nameOf(v.Carried.Lost), v.nameOf(v.Carried.By)), false
	case v.Better != "":
		return v.Better, true
	case v.Paused: // by an earlier leader, whose reason is gone
		return "the plan was paused", true
	}
	return "", false
}
