package node

import (
	"pnode/node/api"
	"pnode/pipeline/model"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// fillPlan puts what the run is and how its plan goes into a status.
func (n *Node) fillPlan(s *api.Status, state consensus.State) {
	if state.Run == nil {
		return
	}
	s.About = about(*state.Run)
	r, err := n.portray(state)
	if err != nil {
		n.log.Debug("no portrait of the plan", "cause", err)
		return
	}
	s.About.Schedule, s.About.Course = r.plan.Schedule, r.plan.ScheduleChoice().String()
	s.About.PredictedMS = milliseconds(int64(r.line.Makespan))
	s.About.StepMS = milliseconds(r.seen.StepNanos)
	s.Seats, s.Links = r.seats(), r.links()
}

func about(run plan.RunSpec) *api.About {
	m := run.Model.Resolved()
	family := "GPT-2 style"
	if m.Positions == model.RoPE {
		family = "Llama style"
	}
	if m.LoRA.Rank > 0 {
		family += ", adapters alone are trained"
	}
	return &api.About{
		Parameters: m.Params(), Family: family, Layers: m.Layers(), Channels: m.Channels, Context: m.Context, Vocab: m.Vocab,
		Micros: run.Train.Micros, TokensPerStep: run.Train.Micros * run.Train.MicroBatch * m.Context,
	}
}

// seats tell what the plan's devices hold, and where the newest steps went.
func (r portrait) seats() (seats []api.SeatStatus) {
	for w, seat := range r.plan.Workers() {
		d := r.pace.devices[seat]
		s := api.SeatStatus{
			Peer: seat.Peer, Device: seat.Device, Model: d.Model, MemoryBytes: r.memory[w], FreeBytes: d.MemoryFreeBytes,
			StepMS: milliseconds(r.seen.StepNanos),
		}
		for _, h := range r.plan.StagesOf(seat) {
			layers := r.plan.At(h).Layers
			s.Holds = append(s.Holds, api.Held{Replica: h.Replica, Stage: h.Stage, Layers: layers})
			for l := layers.First; l < layers.End; l++ {
				s.Parameters += int64(r.pace.run.Model.LayerLen(l))
			}
			seen := r.pace.stages[h]
			s.BusyMS += milliseconds(seen.ForwardNanos + seen.BackwardNanos + seen.UpdateNanos)
		}
		if s.BusyMS > 0 && s.StepMS > 0 {
			s.BusyMS = min(s.BusyMS, s.StepMS)
			s.ExposedMS = min(milliseconds(int64(r.exposed[w])), s.StepMS-s.BusyMS)
		}
		seats = append(seats, s)
	}
	return seats
}

// links are both directions between nodes whose stages follow each other, each once.
func (r portrait) links() (links []api.LinkStatus) {
	told := map[[2]plan.PeerID]bool{}
	add := func(from, to plan.PeerID) {
		if from == to || told[[2]plan.PeerID{from, to}] {
			return
		}
		told[[2]plan.PeerID{from, to}] = true
		l := r.pace.link(from, to)
		links = append(links, api.LinkStatus{
			From: from, To: to, BytesPerS: l.BytesPerS, RTTMS: milliseconds(l.RTTNanos), JitterMS: milliseconds(l.JitterNanos), Live: l.live,
		})
	}
	for _, pipe := range r.plan.Replicas {
		for s := 1; s < len(pipe.Stages); s++ {
			add(pipe.Stages[s-1].Peer, pipe.Stages[s].Peer)
			add(pipe.Stages[s].Peer, pipe.Stages[s-1].Peer)
		}
	}
	return links
}
