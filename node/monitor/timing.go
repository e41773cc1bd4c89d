package monitor

import (
	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner"
	"pnode/planner/cost"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// timing knows how long passes and messages of a plan take: as the heartbeats of the newest step
// report it, and as profiles and the cost model say where they do not.
type timing struct {
	run     plan.RunSpec
	costs   []model.LayerCost
	devices map[plan.WorkerID]plan.DeviceProfile
	links   map[[2]plan.PeerID]seenLink
	stages  map[plan.StageID]planner.StageSeen
}

// seenLink is one direction of a link. Live ones were measured with the run's own messages.
type seenLink struct {
	plan.LinkProfile
	live bool
}

// newTiming takes the costs of the run's layers.
func newTiming(state consensus.State, costs []model.LayerCost, seen planner.Seen) timing {
	t := timing{
		run: *state.Run, costs: costs, devices: map[plan.WorkerID]plan.DeviceProfile{},
		links: map[[2]plan.PeerID]seenLink{}, stages: map[plan.StageID]planner.StageSeen{},
	}
	for _, m := range state.Members {
		for _, d := range m.Profile.Devices {
			t.devices[plan.WorkerID{Peer: m.Peer, Device: d.Name}] = d
		}
		for _, l := range m.Profile.Links {
			t.links[[2]plan.PeerID{m.Peer, l.Peer}] = seenLink{LinkProfile: l}
		}
	}
	for _, l := range seen.Links {
		link := t.linkBetween(l.From, l.To)
		link.live, link.RTTNanos, link.JitterNanos = true, l.RTTNanos, l.JitterNanos
		if l.BytesPerS > 0 {
			link.BytesPerS = l.BytesPerS
		}
		t.links[[2]plan.PeerID{l.From, l.To}] = link
	}
	for _, s := range seen.Stages {
		t.stages[plan.StageID{Replica: s.Replica, Stage: s.Stage}] = s
	}
	return t
}

// linkBetween returns what is known of a direction: as measured, else as measured the other way,
// else nothing.
func (t timing) linkBetween(from, to plan.PeerID) seenLink {
	if l, ok := t.links[[2]plan.PeerID{from, to}]; ok {
		return l
	}
	return t.links[[2]plan.PeerID{to, from}]
}

// of returns the times that a simulation of the plan runs with. Its sequences are cut into segments.
func (t timing) of(pl plan.Plan, segments int) (out schedule.Timing) {
	for r, pipe := range pl.Replicas {
		var costs schedule.Costs
		for s, place := range pipe.Stages {
			h := plan.StageID{Replica: plan.Replica(r), Stage: plan.Stage(s)}
			costs.Stages = append(costs.Stages, t.stage(h, place, pipe.Micros).Over(max(segments, 1)))
			if s > 0 {
				before := pipe.Stages[s-1]
				bytes := t.boundaryBytes(before, segments)
				costs.Boundaries = append(costs.Boundaries, schedule.Boundary{
					Activation: t.hop(before.Peer, place.Peer, bytes), Gradient: t.hop(place.Peer, before.Peer, bytes),
				})
			}
		}
		out.Replicas = append(out.Replicas, costs)
	}
	return out
}

// stage returns the times of a stage for a micro-batch. A backward that was seen is parted into
// recomputation, input and weight gradient as the device's profile says.
func (t timing) stage(h plan.StageID, place plan.Placement, micros int) schedule.StageTime {
	d := t.devices[place.Worker()]
	device := cost.SpeedOf(d, t.run.Train.Storage.Of(place))
	var layers cost.LayerTime
	var again schedule.Nanos
	levels := t.run.Train.Recompute.Of(place)
	for l := place.Layers.First; l < place.Layers.End; l++ {
		layers = layers.Add(device.Layer(t.costs[l]))
		if l >= place.Layers.End-place.Ahead {
			again += device.Again(t.costs[l], levels[l-place.Layers.First])
		}
	}
	out := schedule.StageTime{Forward: layers.Forward, Input: layers.Input, Weight: layers.Weight, Recompute: again, Update: layers.Update}
	seen := t.stages[h]
	if seen.ForwardNanos <= 0 || seen.BackwardNanos <= 0 {
		return out
	}
	each := float64(seen.BackwardNanos) / float64(micros) / max(1, float64(again+layers.Input+layers.Weight))
	scaled := func(n schedule.Nanos) schedule.Nanos { return min(schedule.Nanos(float64(n)*each), cost.Longest) }
	out.Forward = min(schedule.Nanos(seen.ForwardNanos)/schedule.Nanos(micros), cost.Longest)
	out.Recompute, out.Input, out.Weight = scaled(again), scaled(layers.Input), scaled(layers.Weight)
	if seen.UpdateNanos > 0 {
		out.Update = min(schedule.Nanos(seen.UpdateNanos), cost.Longest)
	}
	return out
}

// boundaryBytes returns the size of a message from a stage to the next.
func (t timing) boundaryBytes(from plan.Placement, segments int) int64 {
	codec, err := plan.ParseCodec(from.Codec)
	if err != nil {
		codec = plan.CodecF32 // plans say nothing of the codec that changes nothing
	}
	const elementBytes = 4
	return codec.Bytes(t.costs[from.Layers.End-1].BoundaryBytes / elementBytes / int64(max(segments, 1)))
}

// hop returns the way of a message of so many bytes; over the planner's default link where nobody
// measured.
func (t timing) hop(from, to plan.PeerID, bytes int64) schedule.Hop {
	l := t.linkBetween(from, to)
	switch {
	case from == to:
		return cost.Local.Hop(bytes)
	case l.BytesPerS <= 0:
		return planner.DefaultLink.Hop(bytes)
	}
	return cost.Link{BytesPerS: l.BytesPerS, RTTNanos: max(l.RTTNanos, 0) + 2*max(l.JitterNanos, 0)}.Hop(bytes)
}
