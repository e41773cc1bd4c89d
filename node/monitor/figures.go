package monitor

import (
	"pnode/node/api"
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
		if l.Transport != "" {
			link.Transport = l.Transport
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

// workers returns what the plan's devices hold, and where their newest steps went.
func (v planView) workers() (seats []api.SeatStatus) {
	held := heldBy(v.plan)
	for w, worker := range v.plan.Workers() {
		d := v.figures.devices[worker]
		s := api.SeatStatus{
			Peer: worker.Peer, Device: worker.Device, Model: d.Model, MemoryBytes: v.memory[w], FreeBytes: d.MemoryFreeBytes,
			StepMS: milliseconds(v.seen.StepNanos),
		}
		for _, h := range held[worker] {
			if took := v.alone[h.Replica]; took > 0 {
				s.StepMS = milliseconds(took)
			}
			layers := v.plan.At(h).Layers
			s.Holds = append(s.Holds, api.Held{Replica: h.Replica, Stage: h.Stage, Layers: layers})
			for l := layers.First; l < layers.End; l++ {
				s.Parameters += int64(v.input.Run.Model.LayerLen(l))
			}
			seen := v.figures.stages[h]
			s.BusyMS += milliseconds(seen.ForwardNanos + seen.BackwardNanos + seen.UpdateNanos)
		}
		if s.BusyMS > 0 && s.StepMS > 0 {
			s.BusyMS = min(s.BusyMS, s.StepMS)
			s.ExposedMS = min(milliseconds(int64(v.exposed[w])), s.StepMS-s.BusyMS)
		}
		seats = append(seats, s)
	}
	return seats
}

// heldBy returns the stages of each worker, in the order of replicas and stages.
func heldBy(p plan.Plan) map[plan.WorkerID][]plan.StageID {
	held := map[plan.WorkerID][]plan.StageID{}
	for r, pipe := range p.Replicas {
		for s, place := range pipe.Stages {
			held[place.Worker()] = append(held[place.Worker()], plan.StageID{Replica: plan.Replica(r), Stage: plan.Stage(s)})
		}
	}
	return held
}

// lines returns what is known of both directions between nodes whose stages follow each other.
func (v planView) lines() (links []api.LinkStatus) {
	for _, ends := range neighbours(v.plan) {
		links = append(links, v.figures.linkStatus(ends))
	}
	return links
}

// linkStatus returns what is known of a direction.
func (f figures) linkStatus(ends [2]plan.PeerID) api.LinkStatus {
	l := f.linkBetween(ends[0], ends[1])
	return api.LinkStatus{
		From: ends[0], To: ends[1], BytesPerS: l.BytesPerS, RTTMS: milliseconds(l.RTTNanos), JitterMS: milliseconds(l.JitterNanos), Live: l.live,
		Transport: l.Transport,
	}
}

// neighbours returns both directions between nodes whose stages follow each other, each once.
func neighbours(p plan.Plan) (all [][2]plan.PeerID) {
	seen := map[[2]plan.PeerID]bool{}
	for _, pipe := range p.Replicas {
		for s := 1; s < len(pipe.Stages); s++ {
			from, to := pipe.Stages[s-1].Peer, pipe.Stages[s].Peer
			for _, ends := range [][2]plan.PeerID{{from, to}, {to, from}} {
				if from != to && !seen[ends] {
					seen[ends] = true
					all = append(all, ends)
				}
			}
		}
	}
	return all
}
