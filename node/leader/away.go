package leader

import (
	"fmt"
	"slices"
	"time"

	"pnode/pipeline/link/silence"
	"pnode/planner/plan"
)

const (
	// DeadAfter bounds the silence of a member before the leader asks its host whether the
	// process still runs, and counts it as gone if not. A member whose links were given up is suspected from then on.
	DeadAfter = 5 * time.Second
	// UnreachableAfter bounds the silence of a member whose host is silent too, where its heartbeats
	// have taught no shorter bound: links bridge that time, as pipeline/link's Options.PeerTimeout says.
	UnreachableAfter = silence.Most
)

// dead marks a member gone whose process has ended, or that was away for longer than it ever is.
func (v view) dead() (verdict, bool) {
	for _, m := range v.Members {
		if m.Ended {
			by, replays := v.substitute(m.Peer)
			return verdict{Gone: m.Peer, Ended: true, By: by, Replays: replays, Why: "its process has ended"}, true
		}
	}
	for _, m := range v.Members {
		if m.Silent > m.lost() {
			return verdict{Gone: m.Peer, Why: m.silence()}, true
		}
	}
	return verdict{}, false
}

// doubtful doubts that a member is there while the plan goes on. While its host says nothing only the plan without it is looked
// for. Who has no part in the plan, and is silent for longer than it ever is, gets none in the next one either.
func (v view) doubtful() (verdict, bool) {
	for _, m := range v.Members {
		if m.Silent <= DeadAfter || v.broken() || m.Silent > m.suspicious() && !v.Plan.Places(m.Peer) {
			continue
		}
		if lost, ok := v.suspected(); ok {
			return lost, true
		}
		return verdict{Gone: m.Peer, Doubt: true, Why: m.silence()}, true
	}
	return verdict{}, false
}

// silence says for people how long nothing was heard.
func (m memberView) silence() string {
	return fmt.Sprintf("no sign of life for %s", plan.Duration(m.Silent+m.Slack))
}

// suspected has the plan looked for that follows the loss of a member of this one, where one is silent for longer than it
// ever is. Nothing else comes of it: the member may be back at any time.
func (v view) suspected() (verdict, bool) {
	for _, m := range v.Members {
		if m.Silent > m.suspicious() && slices.Contains(v.Plan.Peers(), m.Peer) {
			return verdict{Prepare: true, Suspect: m.Peer, Why: v.nameOf(m.Peer) + " is gone"}, true
		}
	}
	return verdict{}, false
}

// missed waits for members of a broken plan that are silent: they may be back at any time, and no plan with them would get on
// before. Where nothing is lost by it, the next plan does without those that are silent for longer than they ever are. They stay in
// the run.
func (v view) missed() (verdict, bool) {
	if !v.broken() {
		return verdict{}, false
	}
	if next, waits := starting(v); waits {
		return next, true
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

// missing plans without the members of the plan that are gone, and anew with those that were started again.
func (v view) missing() (verdict, bool) {
	why := v.absence()
	return verdict{Plan: true, Why: why}, why != ""
}

// deserted rests where no member is active: the last node leaves.
func (v view) deserted() (verdict, bool) {
	members, _ := v.active()
	return verdict{}, members == 0
}
