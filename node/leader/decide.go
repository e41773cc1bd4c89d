package leader

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"pnode/node/gossip"
	"pnode/pipeline/link/silence"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

const (
	// DeadAfter bounds the silence of a member before the leader asks its host whether the
	// process still runs, and counts it as gone if not. A member whose links were given up is suspected from then on.
	DeadAfter = 5 * time.Second
	// UnreachableAfter bounds the silence of a member whose host is silent too, where its heartbeats
	// have taught no shorter bound: links bridge that time, as pipeline/link's Options.PeerTimeout says.
	UnreachableAfter = silence.Most
	// stallGrace is the first patience with a generation that was given up: a lost peer may show
	// before the same members are planned again.
	stallGrace = 3 * time.Second
	// lackingPlans bounds the plans that fail for want of a checkpoint's chunks before the run
	// goes back to an older checkpoint.
	lackingPlans = 3
	// A pause waits for its save for leastSavePatience, or longer where saveSteps steps take longer; not that a step
	// is believed to take more than a slowStep.
	leastSavePatience = time.Minute
	saveSteps         = 4
	slowStep          = 5 * time.Minute
	// copyPatience bounds how long a change that can wait does so for copies of checkpoints that are under way.
	copyPatience = 2 * time.Minute
	// hastyPlans bounds the plans without a new checkpoint between them that follow a ruling at once.
	hastyPlans = 8
)

// memberView describes a member to decide.
type memberView struct {
	Peer    plan.PeerID
	Active  bool // in the roster and not leaving
	Leaving bool // draining
	// Restarted after the plan was made, so not carrying it out.
	Restarted bool
	// Silent is for how long it has given no sign of life. It is suspected after Suspicious, and lost after Lost; the zero
	// value of each stands for UnreachableAfter.
	Silent, Suspicious, Lost time.Duration
	Ended                    bool // its process, as its operating system says
	Devices                  int  // that it computes on
}

// view is the input to a decision, all of it plain values.
type view struct {
	Plan       plan.Plan
	Checkpoint plan.Step
	Members    []memberView
	Names      map[plan.PeerID]string // of the plan's members, for people
	// The run begins with at least MinNodes and MinDevices.
	MinNodes, MinDevices int
	// Better says why another plan would be worth the change; empty when it is not.
	Better string
	// Copying: checkpoints of the plan's stages or copies of them are under way, for which such a change has waited for
	// CopiesFor. A pause would end them.
	Copying   bool
	CopiesFor time.Duration
	// Paused: the plan's workers were asked to save their newest step and to wait, as this leader has known for
	// PausedFor. It waits for SavePatience. Saved: they have. Newest is the newest step that the plan's coordinator
	// reports, which may be a second old.
	Paused, Saved           bool
	PausedFor, SavePatience time.Duration
	Newest                  plan.Step
	Carried                 carried
	Stall                   stall
	Trial                   trial // of the generation that was given up
	Ruled                   bool  // the log says whose fault that was
	// Jump is what is to be done about the loss. Ended says why the generation ends though its members carry it on,
	// once the log knows.
	Jump  ruling
	Ended string
	// Restarts is what is to be done about a member whose process is started again and again.
	Restarts ruling
	// Apart are the members that are left out since data does not get through between them and another one.
	Apart map[plan.PeerID]bool
	// Layers counts those of the model. Offers are what the members have left of the plan once it is broken, which this
	// leader has known for BrokenFor.
	Layers    int
	Offers    []offer
	BrokenFor time.Duration
	// Salvage is the newest that the log has of the generation, known here for SalvagedFor; nil without one. Stored has the
	// layers of its step that are reported. Salvages counts those that this leader has proposed.
	Salvage     *consensus.Salvage
	SalvagedFor time.Duration
	// ReplayPatience is how long the steps took that the salvage has computed again.
	ReplayPatience time.Duration
	Stored         map[int]bool
	Salvages       int
	Ending         bool // the run is stopping or finished
	// Returning: a member is back after the run was stopped. It may have to wait for an owner that is gone.
	Returning bool
	// Orphaned: a layer of the newest checkpoint was with members alone that have left the run.
	Orphaned bool
}

// stall describes a generation that was given up, if any.
type stall struct {
	gossip.Stall
	// Patience bounds the wait for it to end by itself: longer each time a generation ends
	// without a new checkpoint.
	Patience time.Duration
	// Plans counts those made since the newest checkpoint. Alone: this node is the only
	// member and the only holder.
	Plans int
	Alone bool
	// Fallback is the step of the newest older checkpoint that is kept; 0 is none.
	Fallback plan.Step
}

// verdict says what the leader does next: at most one thing at a time.
type verdict struct {
	Gone  plan.PeerID // mark this member gone
	Doubt bool        // but only if its host says that the process has ended
	Ended bool        // which it has said
	// By goes on in its place; empty: the generation ends.
	By plan.PeerID
	// Salvage has the state that the living have in memory saved; nil is no. Prepare has the next plan looked for
	// meanwhile, as it will be once Suspect is gone, if there is one.
	Salvage  *consensus.Salvage
	Prepare  bool
	Suspect  plan.PeerID
	Pause    bool      // have the newest step saved, a new plan follows it
	Rollback plan.Step // give the newest checkpoint up for this one; 0 is no
	Rule     ruling    // write down whose fault it was; zero is no
	Plan     bool      // make a new plan now
	Again    bool      // the same as before
	Why      string
	// Blocked says why there is no plan and none can be made.
	Blocked string
}

// decide is the leader's rule, cheapest loss first. When the running plan cannot go on, it has what the living have in
// memory saved, marks the dead, and plans; otherwise it has the state saved and plans from there.
func decide(v view) verdict {
	if v.Ending && !v.Returning {
		return verdict{}
	}
	if r, ok := v.parting(); ok {
		return verdict{Rule: r}
	}
	saved, salvaging := v.salvage()
	if saved.Salvage != nil { // whoever may be dead
		return saved
	}
	switch gone, ok := v.silent(); {
	case ok && !gone.Doubt:
		return gone
	case ok && !v.broken():
		if lost := v.suspected(); lost.Prepare {
			return lost
		}
		return gone
	}
	if v.Ending {
		return verdict{}
	}
	if found, ok := v.fault(); ok {
		return found
	}
	if v.Jump != (ruling{}) && v.Ended == "" {
		return verdict{Rule: v.Jump}
	}
	if v.Restarts != (ruling{}) && v.Ended == "" {
		return verdict{Rule: v.Restarts}
	}
	active, devices, leaving := 0, 0, map[plan.PeerID]bool{}
	for _, m := range v.Members {
		leaving[m.Peer] = m.Leaving
		if m.Active {
			active++
			devices += m.Devices
		}
	}
	if v.Plan.Generation == 0 {
		return v.first(active, devices)
	}
	if active == 0 {
		return verdict{} // the last node leaves: its checkpoint is the end of the run for now
	}
	if v.Ended != "" {
		return verdict{Plan: true, Why: v.Ended}
	}
	missed, misses := v.missed()
	switch why := v.absence(); {
	case salvaging && misses && !saved.Prepare:
		return verdict{Prepare: missed.Prepare || missed.Plan, Why: missed.Why}
	case salvaging:
		return saved
	case misses:
		return missed
	case why != "":
		return verdict{Plan: true, Why: why}
	case v.Checkpoint < v.Plan.Start:
		return verdict{Plan: true, Why: fmt.Sprintf("nobody who is up has all of the checkpoint of step %d", v.Plan.Start)}
	case v.Orphaned && v.Checkpoint == v.Plan.Start && v.Newest <= v.Plan.Start && v.Stall.Fallback > 0:
		return verdict{Rollback: v.Stall.Fallback, Why: fmt.Sprintf("who had the checkpoint of step %d left before others had all of it", v.Checkpoint)}
	case v.Stall.For > 0:
		return v.stalled()
	}
	return v.change(leaving)
}

// absent returns the members that have a part in the plan and do not carry it out, and why. A lost one does through its
// substitute, while all others do and nobody has given the generation up.
func (v view) absent() map[plan.PeerID]string {
	absent := map[plan.PeerID]string{}
	for _, peer := range v.Plan.Peers() {
		absent[peer] = "is gone"
	}
	for _, m := range v.Members {
		switch {
		case m.Restarted:
			absent[m.Peer] = "was started again"
		case m.Active || m.Leaving:
			delete(absent, m.Peer)
		}
	}
	if v.Stall.For == 0 && v.Salvage == nil && len(absent) == 1 {
		delete(absent, v.Carried.Lost)
	}
	return absent
}

// absence returns which member of the plan is absent first, and why; empty where none is.
func (v view) absence() string {
	absent := v.absent()
	for _, peer := range v.Plan.Peers() {
		if why, ok := absent[peer]; ok {
			return fmt.Sprintf("%s %s", v.nameOf(peer), why)
		}
	}
	return ""
}

// broken reports whether the plan's members do not carry it out any more, one of them at least.
func (v view) broken() bool {
	return v.Plan.Generation != 0 && (v.Stall.For > 0 || v.absence() != "")
}

// savePatience returns how long a pause waits for the step under way and its save, where a step takes so long.
func savePatience(step time.Duration) time.Duration {
	return max(leastSavePatience, saveSteps*min(step, slowStep))
}

// nameOf returns what people call a peer.
func (v view) nameOf(peer plan.PeerID) string { return cmp.Or(v.Names[peer], peer.Short()) }

// lost returns the silence after which the member is gone, suspicious that after which it is suspected.
func (m memberView) lost() time.Duration       { return cmp.Or(m.Lost, UnreachableAfter) }
func (m memberView) suspicious() time.Duration { return cmp.Or(m.Suspicious, UnreachableAfter) }

// silent marks a member gone whose process has ended, or from which nothing is heard. Members come first that were
// away for longer than they ever are.
func (v view) silent() (gone verdict, ok bool) {
	for _, m := range v.Members {
		if m.Ended {
			return verdict{Gone: m.Peer, Ended: true, By: v.substitute(m.Peer), Why: "its process has ended"}, true
		}
	}
	for _, limit := range []func(memberView) time.Duration{memberView.lost, func(memberView) time.Duration { return DeadAfter }} {
		for _, m := range v.Members {
			if m.Silent > limit(m) {
				why := fmt.Sprintf("no sign of life for %v", m.Silent.Round(time.Second/10))
				return verdict{Gone: m.Peer, Doubt: m.Silent <= m.lost(), Why: why}, true
			}
		}
	}
	return verdict{}, false
}

// suspected has the plan looked for that follows the loss of a member of this one, where one is silent for longer than it
// ever is. Nothing else comes of it: the member may be back at any time.
func (v view) suspected() verdict {
	for _, m := range v.Members {
		if m.Silent > m.suspicious() && slices.Contains(v.Plan.Peers(), m.Peer) {
			return verdict{Prepare: true, Suspect: m.Peer, Why: v.nameOf(m.Peer) + " is gone"}
		}
	}
	return verdict{}
}

// missed waits for members of a broken plan that are silent: they may be back at any time, and no plan with them would get on
// before. Where nothing is lost by it, the next plan does without those that are silent for longer than they ever are. They stay in
// the run.
func (v view) missed() (verdict, bool) {
	if !v.broken() {
		return verdict{}, false
	}
	places, waits, why := v.Plan.Peers(), false, ""
	for _, m := range v.Members {
		switch {
		case !slices.Contains(places, m.Peer):
		case m.Silent > m.suspicious():
			waits, why = true, v.nameOf(m.Peer)+" is silent"
		case m.Silent > DeadAfter:
			waits = true
		}
	}
	newer := func(o offer) bool { return !o.Replay && max(o.Step, o.Pending) > v.Checkpoint }
	secured := v.Salvage != nil && v.Checkpoint >= v.Salvage.Step ||
		v.heardAll() && v.Newest <= v.Checkpoint && !slices.ContainsFunc(v.Offers, newer)
	return verdict{Plan: why != "" && secured, Prepare: why != "" && !secured, Why: why}, waits
}

// fault rules on a generation that was given up for one, before anything else is done about it: whoever is at fault
// may restart or leave to be forgotten. It waits for the words of all members for a while, for those of the accused as
// long as a heartbeat takes.
func (v view) fault() (verdict, bool) {
	said := slices.DeleteFunc(slices.Clone(v.Trial.Accusations), func(a accusation) bool { return a.Kind == plan.LostLink })
	if v.Ruled || v.Plan.Generation == 0 || len(said) == 0 {
		return verdict{}, false
	}
	deaf := slices.ContainsFunc(said, func(a accusation) bool { return a.By == "" })
	missing := slices.ContainsFunc(v.Plan.Peers(), func(p plan.PeerID) bool {
		accused := slices.ContainsFunc(said, func(a accusation) bool { return a.Accused == p })
		return (!accused || v.Stall.For <= gossip.Every) && !slices.Contains(v.Stall.By, p)
	})
	if missing && !deaf && v.Stall.For <= stallGrace {
		return verdict{}, true
	}
	r, ok := judge(v.Trial)
	return verdict{Rule: r}, ok
}

// first waits for the nodes and devices that the run wants to begin with.
func (v view) first(active, devices int) verdict {
	if need := max(1, v.MinNodes); active < need {
		return verdict{Blocked: fmt.Sprintf("the run begins with %d nodes, %d here so far; `pnode invite` prints how others join", need, active)}
	}
	if devices < v.MinDevices {
		return verdict{Blocked: fmt.Sprintf("the run begins with %d devices, %d here so far; `pnode invite` prints how others join", v.MinDevices, devices)}
	}
	return verdict{Plan: true, Why: "first plan"}
}

// stalled plans again when patience is over. Where chunks are lacking that nobody brings, the
// run goes back to an older checkpoint first.
func (v view) stalled() verdict {
	s := v.Stall
	found, ok := judge(v.Trial)
	ok = ok && !v.Ruled
	switch {
	case !s.Lacks || !s.Alone && (s.Plans < lackingPlans || ok):
		if v.Ruled && s.Plans < hastyPlans {
			return verdict{Plan: true, Why: "a member gave the generation up: " + s.Why}
		}
		if s.For <= s.Patience {
			if v.together() {
				return verdict{Plan: true, Again: true, Why: "a member gave the generation up: " + s.Why}
			}
			return verdict{}
		}
		if ok {
			return verdict{Rule: found}
		}
		return verdict{Plan: true, Why: "a member gave the generation up: " + s.Why}
	case s.Fallback == 0:
		return verdict{Blocked: fmt.Sprintf("nobody who is up has all of the checkpoint of step %d, and no older one is kept; start a node that holds a copy", v.Checkpoint)}
	}
	return verdict{Rollback: s.Fallback, Why: fmt.Sprintf("nobody who is up has all of the checkpoint of step %d", v.Checkpoint)}
}

// together reports whether all members of a plan that made steps have said that it has ended for them, and have had the time to show
// who cannot reach whom: nobody is waited for, and all can go on where they were.
func (v view) together() bool {
	got := max(v.Checkpoint, v.Newest) > v.Plan.Start
	away := func(p plan.PeerID) bool { return !slices.Contains(v.Stall.By, p) }
	return got && v.Stall.For > showTime && !slices.ContainsFunc(v.Plan.Peers(), away)
}

// change handles the wishes that can wait for a checkpoint.
func (v view) change(leaving map[plan.PeerID]bool) verdict {
	why := ""
	for _, peer := range v.Plan.Peers() {
		if leaving[peer] {
			why = fmt.Sprintf("%s is leaving", v.nameOf(peer))
		}
	}
	if lost := v.Carried.Lost; why == "" && lost != "" {
		why = fmt.Sprintf("%s is gone, and %s computes its part", v.nameOf(lost), v.nameOf(v.Carried.By))
	}
	canWait := why == ""
	if canWait {
		why = v.Better
	}
	if why == "" && v.Paused {
		why = "the plan was paused" // by an earlier leader, whose reason is gone
	}
	switch {
	case why == "":
		return v.suspected()
	case !v.Paused && canWait && v.Copying && v.CopiesFor <= copyPatience:
		if lost := v.suspected(); lost.Prepare {
			return lost
		}
		return verdict{Prepare: true, Why: why}
	case !v.Paused:
		return verdict{Pause: true, Why: why}
	case v.Saved:
		return verdict{Plan: true, Why: why}
	case v.PausedFor > v.SavePatience: // a member does not save, or says that there is more to save
		return verdict{Plan: true, Why: why + "; the newest step was not saved in time"}
	default:
		return verdict{} // the save is under way
	}
}
