package leader

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"pnode/node/gossip"
	"pnode/node/leader/blame"
	"pnode/planner"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// view is the input to a decision, all of it plain values. Each part of a term fills in the part that it follows.
type view struct {
	Plan       plan.Plan
	Checkpoint plan.Step
	// Newest is the newest step that the plan's coordinator reports, which may be a second old.
	Newest  plan.Step
	Members []memberView
	Names   map[plan.PeerID]string // for people
	Owners  []plan.PeerID          // who are here
	// The run begins with at least MinNodes and MinDevices.
	MinNodes, MinDevices int
	Ending, Finished     bool // the run is stopping or finished
	// Returning: a member is back after the run was stopped. It may have to wait for an owner that is gone.
	Returning bool
	// Entering is for how long there have been members that measure their lines and fetch the text, without a break; 0: there is none.
	Entering time.Duration
	// Orphaned: a layer of the newest checkpoint was with members alone that have left the run.
	Orphaned bool
	Carried  carried
	// Replayers says who could go on from the newest checkpoint in the place of a member whose process has ended, best first.
	Replayers map[plan.PeerID][]plan.PeerID
	Stall     stall
	UnderWay  underWay
	wish
	pause
	charges
	remains
	meeting
}

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
	Slack                    time.Duration // that Silent leaves out: it speaks at a slower pace
	Unheard                  bool          // by this node since it was started
	Ended                    bool          // its process, as its operating system says
	Devices                  int           // that it computes on
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
	// Fallback is the step of the newest older checkpoint with a holder of each layer; 0 is none.
	Fallback plan.Step
}

// lost returns the silence after which the member is gone, suspicious that after which it is suspected.
func (m memberView) lost() time.Duration       { return cmp.Or(m.Lost, UnreachableAfter) }
func (m memberView) suspicious() time.Duration { return cmp.Or(m.Suspicious, UnreachableAfter) }

// nameOf returns what people call a peer.
func (v view) nameOf(peer plan.PeerID) string { return cmp.Or(v.Names[peer], peer.Short()) }

// active counts the members that are active, and their devices.
func (v view) active() (members, devices int) {
	for _, m := range v.Members {
		if m.Active {
			members++
			devices += m.Devices
		}
	}
	return members, devices
}

// entering reports whether a plan that can wait does so for a member that is about to have a part in it.
func (v view) entering() bool { return v.Entering > 0 && v.Entering <= enterPatience }

// leaver returns a member of the plan that is leaving; empty without one.
func (v view) leaver() (peer plan.PeerID) {
	for _, p := range v.Plan.Peers() {
		if slices.ContainsFunc(v.Members, func(m memberView) bool { return m.Peer == p && m.Leaving }) {
			peer = p
		}
	}
	return peer
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
		case !v.Plan.Places(m.Peer): // who came after the plan counts as started again, too
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

// heardAll reports whether all members of the plan that live, as far as anybody knows, have ended the generation. Who is accused
// lives if it was heard of lately: the link may be at fault. Who was not heard of at all for a while does not.
func (v view) heardAll() bool {
	absent := v.absent()
	for _, m := range v.Members {
		if m.Unheard && m.Silent > m.suspicious() {
			absent[m.Peer] = "is silent"
		}
	}
	lately := func(p plan.PeerID) bool {
		return slices.ContainsFunc(v.Members, func(m memberView) bool { return m.Peer == p && m.Silent <= steadyGap })
	}
	return !slices.ContainsFunc(v.Plan.Peers(), func(p plan.PeerID) bool {
		_, away := absent[p]
		away = away || v.Apart[p]
		accused := !lately(p) && slices.ContainsFunc(v.Trial.Accusations, func(a accusation) bool { return a.Accused == p })
		offers := slices.ContainsFunc(v.Offers, func(o offer) bool { return o.By == p })
		return !away && !accused && !offers && !slices.Contains(v.Stall.By, p)
	})
}

// spoilt reports whether somebody says that what the generation computed is wrong.
func (v view) spoilt() bool {
	return slices.ContainsFunc(v.Trial.Accusations, func(a accusation) bool { return a.Kind != plan.LostLink && a.Kind != plan.NoProgress })
}

// accusation holds the word of a member against another one, or of itself, for which a generation ended.
type accusation = gossip.Accusation

// moment holds what all parts of a term see at one look.
type moment struct {
	state consensus.State
	now   time.Time
	seen  *sightings
	// patience is how long to wait for the outcome of a proposal.
	patience time.Duration
	// stall says which members of the plan have given the generation up.
	stall gossip.Stall
	// silent are the members that are silent for longer than they ever are.
	silent []consensus.Member
	// heard is what came of asking coordinators of replicas with local steps that contradict each other. Hearing: more may come.
	heard   []blame.Heard
	hearing bool
}

// members describes those of the roster to decide.
func (m moment) members(self plan.PeerID, ended *ended) (views []memberView) {
	for _, in := range m.state.Members {
		if in.State == consensus.Gone {
			continue
		}
		v := memberView{
			Peer: in.Peer, Devices: planner.Member{Peer: in.Peer, Profile: in.Profile}.Devices(),
			Active: in.State == consensus.Active, Leaving: in.State == consensus.Draining,
			Ended: ended.has(process{in.Peer, in.ProcessEpoch}), Restarted: m.state.Reborn(in),
		}
		if in.Peer != self {
			v.Silent, v.Suspicious, v.Lost = m.seen.missed(in, m.stall)
			v.Unheard, v.Slack = m.seen.unheard(in), m.seen.slack(in)
		}
		views = append(views, v)
	}
	return views
}
