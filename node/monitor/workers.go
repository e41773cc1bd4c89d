package monitor

import (
	"pnode/node/api"
	"pnode/planner/plan"
)

// workers returns what the plan's devices hold, and where their newest steps went.
func (v planView) workers() (seats []api.SeatStatus) {
	for w, worker := range v.plan.Workers() {
		d := v.figures.devices[worker]
		s := api.SeatStatus{
			Peer: worker.Peer, Device: worker.Device, Model: d.Model, MemoryBytes: v.memory[w], FreeBytes: d.MemoryFreeBytes,
			StepMS: milliseconds(v.seen.StepNanos),
		}
		for _, h := range v.plan.StagesOf(worker) {
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

// linkStatus returns both directions between nodes whose stages follow each other, each once.
func (v planView) linkStatus() (links []api.LinkStatus) {
	listed := map[[2]plan.PeerID]bool{}
	add := func(from, to plan.PeerID) {
		if from == to || listed[[2]plan.PeerID{from, to}] {
			return
		}
		listed[[2]plan.PeerID{from, to}] = true
		l := v.figures.linkBetween(from, to)
		links = append(links, api.LinkStatus{
			From: from, To: to, BytesPerS: l.BytesPerS, RTTMS: milliseconds(l.RTTNanos), JitterMS: milliseconds(l.JitterNanos), Live: l.live,
		})
	}
	for _, pipe := range v.plan.Replicas {
		for s := 1; s < len(pipe.Stages); s++ {
			add(pipe.Stages[s-1].Peer, pipe.Stages[s].Peer)
			add(pipe.Stages[s].Peer, pipe.Stages[s-1].Peer)
		}
	}
	return links
}
