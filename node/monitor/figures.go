package monitor

import (
	"pnode/planner"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// figures has what profiles and the heartbeats of the newest step report of devices, links and
// stages.
type figures struct {
	devices map[plan.WorkerID]plan.DeviceProfile
	links   map[[2]plan.PeerID]seenLink
	stages  map[plan.StageID]planner.MeasuredStage
}

// seenLink is one direction of a link. Live ones were measured with the run's own messages.
type seenLink struct {
	plan.LinkProfile
	live bool
}

// newFigures gathers the figures of a plan's members.
func newFigures(state consensus.State, seen planner.Measured) figures {
	f := figures{
		devices: map[plan.WorkerID]plan.DeviceProfile{},
		links:   map[[2]plan.PeerID]seenLink{}, stages: map[plan.StageID]planner.MeasuredStage{},
	}
	for _, m := range state.Members {
		for _, d := range m.Profile.Devices {
			f.devices[plan.WorkerID{Peer: m.Peer, Device: d.Name}] = d
		}
		for _, l := range m.Profile.Links {
			f.links[[2]plan.PeerID{m.Peer, l.Peer}] = seenLink{LinkProfile: l}
		}
	}
	for _, l := range seen.Links {
		link := f.linkBetween(l.From, l.To)
		link.live, link.RTTNanos, link.JitterNanos = true, l.RTTNanos, l.JitterNanos
		if l.BytesPerS > 0 {
			link.BytesPerS = l.BytesPerS
		}
		f.links[[2]plan.PeerID{l.From, l.To}] = link
	}
	for _, s := range seen.Stages {
		f.stages[plan.StageID{Replica: s.Replica, Stage: s.Stage}] = s
	}
	return f
}

// linkBetween returns what is known of a direction: as measured, else as measured the other way,
// else nothing.
func (f figures) linkBetween(from, to plan.PeerID) seenLink {
	if l, ok := f.links[[2]plan.PeerID{from, to}]; ok {
		return l
	}
	return f.links[[2]plan.PeerID{to, from}]
}
