package node

import (
	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner"
	"pnode/planner/cost"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// pace is what passes and messages of a plan take: as its nodes tell of the newest step and of
// its messages, and as their profiles say where they have not told.
type pace struct {
	run     plan.RunSpec
	costs   []model.LayerCost
	devices map[plan.WorkerID]plan.DeviceProfile
	links   map[[2]plan.PeerID]seenLink
	stages  map[plan.StageID]planner.StageSeen
}

// seenLink is one direction of a link; live where the run's own messages showed it.
type seenLink struct {
	plan.LinkProfile
	live bool
}

// newPace takes costs, which are those of the run's layers.
func newPace(state consensus.State, costs []model.LayerCost, seen planner.Seen) pace {
	p := pace{
		run: *state.Run, costs: costs, devices: map[plan.WorkerID]plan.DeviceProfile{},
		links: map[[2]plan.PeerID]seenLink{}, stages: map[plan.StageID]planner.StageSeen{},
	}
	for _, m := range state.Members {
		for _, d := range m.Profile.Devices {
			p.devices[plan.WorkerID{Peer: m.Peer, Device: d.Name}] = d
		}
		for _, l := range m.Profile.Links {
			p.links[[2]plan.PeerID{m.Peer, l.Peer}] = seenLink{LinkProfile: l}
		}
	}
	for _, l := range seen.Links {
		link := p.link(l.From, l.To)
		link.live, link.RTTNanos, link.JitterNanos = true, l.RTTNanos, l.JitterNanos
		if l.BytesPerS > 0 {
			link.BytesPerS = l.BytesPerS
		}
		p.links[[2]plan.PeerID{l.From, l.To}] = link
	}
	for _, s := range seen.Stages {
		p.stages[plan.StageID{Replica: s.Replica, Stage: s.Stage}] = s
	}
	return p
}

// link is what is known of a direction: as measured, else as measured the other way, else
// nothing.
func (p pace) link(from, to plan.PeerID) seenLink {
	if l, ok := p.links[[2]plan.PeerID{from, to}]; ok {
		return l
	}
	back := p.links[[2]plan.PeerID{to, from}]
	return back
}

// timing is what a simulation of the plan, whose sequences are cut into segments, runs with.
func (p pace) timing(pl plan.Plan, segments int) (t schedule.Timing) {
	for r, pipe := range pl.Replicas {
		var costs schedule.Costs
		for s, place := range pipe.Stages {
			h := plan.StageID{Replica: plan.Replica(r), Stage: plan.Stage(s)}
			costs.Stages = append(costs.Stages, p.stage(h, place, pipe.Micros).Over(max(segments, 1)))
			if s > 0 {
				before := pipe.Stages[s-1]
				bytes := p.boundaryBytes(before, segments)
				costs.Boundaries = append(costs.Boundaries, schedule.Boundary{
					Activation: p.hop(before.Peer, place.Peer, bytes), Gradient: p.hop(place.Peer, before.Peer, bytes),
				})
			}
		}
		t.Replicas = append(t.Replicas, costs)
	}
	return t
}

// stage is what a stage takes for a micro-batch. What was seen of a backward is parted into
// recomputation, input and weight gradient as the device's profile says.
func (p pace) stage(h plan.StageID, place plan.Placement, micros int) schedule.StageTime {
	d := p.devices[place.Worker()]
	device := cost.SpeedOf(d, p.run.Train.Storage.Of(place))
	var t cost.LayerTime
	var again schedule.Nanos
	levels := p.run.Train.Recompute.Of(place)
	for l := place.Layers.First; l < place.Layers.End; l++ {
		t = t.Add(device.Layer(p.costs[l]))
		if l >= place.Layers.End-place.Ahead {
			again += device.Again(p.costs[l], levels[l-place.Layers.First])
		}
	}
	out := schedule.StageTime{Forward: t.Forward, Input: t.Input, Weight: t.Weight, Recompute: again, Update: t.Update}
	seen := p.stages[h]
	if seen.ForwardNanos <= 0 || seen.BackwardNanos <= 0 {
		return out
	}
	each := float64(seen.BackwardNanos) / float64(micros) / max(1, float64(again+t.Input+t.Weight))
	scaled := func(n schedule.Nanos) schedule.Nanos { return min(schedule.Nanos(float64(n)*each), cost.Longest) }
	out.Forward = min(schedule.Nanos(seen.ForwardNanos)/schedule.Nanos(micros), cost.Longest)
	out.Recompute, out.Input, out.Weight = scaled(again), scaled(t.Input), scaled(t.Weight)
	if seen.UpdateNanos > 0 {
		out.Update = min(schedule.Nanos(seen.UpdateNanos), cost.Longest)
	}
	return out
}

// boundaryBytes is the size of a message from a stage to the next.
func (p pace) boundaryBytes(from plan.Placement, segments int) int64 {
	codec, err := plan.ParseCodec(from.Codec)
	if err != nil {
		codec = plan.CodecF32 // plans say nothing of the codec that changes nothing
	}
	const elementBytes = 4
	return codec.Bytes(p.costs[from.Layers.End-1].BoundaryBytes / elementBytes / int64(max(segments, 1)))
}

// hop is the way of a message of so many bytes; the planner's default where nobody measured.
func (p pace) hop(from, to plan.PeerID, bytes int64) schedule.Hop {
	l := p.link(from, to)
	switch {
	case from == to:
		return cost.Local.Hop(bytes)
	case l.BytesPerS <= 0:
		return planner.DefaultLink.Hop(bytes)
	}
	return cost.Link{BytesPerS: l.BytesPerS, RTTNanos: max(l.RTTNanos, 0) + 2*max(l.JitterNanos, 0)}.Hop(bytes)
}
