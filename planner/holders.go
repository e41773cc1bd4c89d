package planner

import (
	"fmt"
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/holders"
	"pnode/planner/plan"
)

// maxHolderLines bounds the reasons about holders.
const maxHolderLines = 8

// assignHolders gives each placement another node that keeps a copy of its checkpoints, as package holders chooses
// it: in reach of the stage's node, with room on its disk, at another site, not next to the stage, with few copies so far, none that keeps all layers anyway where a spare has room. Without
// another node there is no holder. Who is one already stays so. The reasons name nodes that were passed over for their disks, or taken
// without room. Only replica 0 saves: its
// checkpoints and their copies are what disks need room for, besides their reserve.
func (p *problem) assignHolders(of *plan.Plan) (reasons []plan.Reason) {
	copies, left := map[plan.PeerID]int{}, map[plan.PeerID]int64{}
	measured := slices.ContainsFunc(p.in.Members, func(m Member) bool { return m.Profile.DiskFreeBytes > 0 })
	for _, m := range p.in.Members {
		left[m.Peer] = m.Profile.DiskFreeBytes - plan.DiskReserveBytes
	}
	for s, place := range of.Replicas[0].Stages {
		if !p.keeps(place.Peer, plan.StageID{Stage: plan.Stage(s)}, place.Layers) {
			left[place.Peer] -= p.checkpointBytes(place.Layers)
		}
	}
	for _, pipe := range of.Replicas {
		for _, place := range pipe.Stages {
			copies[place.Holder]++
		}
	}
	share := holders.Share(of.StageCount(), len(p.in.Members))
	var options, roomy []holders.Option // roomy: were disks no matter
	for r := range of.Replicas {
		stages := of.Replicas[r].Stages
		for s := range stages {
			id, place := plan.StageID{Replica: plan.Replica(r), Stage: plan.Stage(s)}, &stages[s]
			if place.Holder != "" {
				continue
			}
			need, state, owner := p.checkpointBytes(place.Layers), p.stateBytes(place.Layers), p.member(place.Peer)
			options, roomy = options[:0], roomy[:0]
			for _, m := range p.in.Members {
				if m.Draining || m.Peer == place.Peer {
					continue
				}
				o := holders.Option{
					Peer: m.Peer, Near: of.Near(id, m.Peer), Whole: m.Whole, Spare: !of.Places(m.Peer), Copies: copies[m.Peer], Laden: copies[m.Peer] >= share,
					Apart: slices.Contains(owner.Apart, m.Peer),
				}
				o.Shared, o.Networks = holders.Common(owner.Ties, m.Ties)
				link, _ := p.links.Between(place.Peer, m.Peer)
				o.Slow = (holders.Copy{StateBytes: state, BytesPerS: link.BytesPerS}).Nanos() > holders.SlowNanos
				roomy = append(roomy, o)
				o.Full = measured && r == 0 && left[m.Peer] < need && !p.keeps(m.Peer, id, place.Layers)
				options = append(options, o)
			}
			holder, ok := holders.Best(options)
			if !ok {
				continue
			}
			nearest, _ := holders.Best(roomy)
			if text := p.holderText(id, need, holder, nearest.Peer, left[nearest.Peer]); text != "" && len(reasons) < maxHolderLines {
				reasons = append(reasons, plan.Reason{Kind: plan.ReasonHolder, Text: text})
			}
			place.Holder = holder.Peer
			copies[holder.Peer]++
			if r == 0 && !p.keeps(holder.Peer, id, place.Layers) {
				left[holder.Peer] -= need
			}
		}
	}
	return reasons
}

// member returns the member of a peer, and one of which nothing is known where it is none.
func (p *problem) member(peer plan.PeerID) Member {
	for _, m := range p.in.Members {
		if m.Peer == peer {
			return m
		}
	}
	return Member{}
}

// holderText says why a holder was chosen for its disk; empty where it was not.
func (p *problem) holderText(id plan.StageID, need int64, holder holders.Option, nearest plan.PeerID, free int64) string {
	what := fmt.Sprintf("replica %d stage %d: its checkpoints take %s", id.Replica, id.Stage, plan.Size(need))
	switch {
	case holder.Full:
		return fmt.Sprintf("%s, the disk of no other node has that much to spare: %s keeps the copy and may run out of room", what, p.label(holder.Peer))
	case holder.Peer != nearest:
		return fmt.Sprintf("%s: %s keeps the copy, not %s, whose disk has %s to spare", what, p.label(holder.Peer), p.label(nearest), plan.Size(max(0, free)))
	}
	return ""
}

// copyReason says how often checkpoints with copies of the stages' state are made, by the stage whose copy takes the longest; nil where
// nobody keeps copies. A step takes so long. The nodes follow the same rule, with what they measure: node/checkpointer.
func (p *problem) copyReason(of plan.Plan, step schedule.Nanos) []plan.Reason {
	if of.Local != nil {
		return []plan.Reason{{Kind: plan.ReasonHolder, Text: "checkpoints are made at outer steps: each replica stores what all have in common, and what it has for itself, so that no copies travel"}}
	}
	worst, text := holders.Checkpoint{TookNanos: -1}, ""
	for s, place := range of.Replicas[0].Stages { // the others do not save
		if place.Holder == "" {
			continue
		}
		link, measured := p.links.Between(place.Peer, place.Holder)
		c := holders.Copy{
			StateBytes: p.stateBytes(place.Layers), BytesPerS: link.BytesPerS,
			BusyBytesPerS: int64(cost.MulDiv(schedule.Nanos(p.traffic(of, place.Peer, place.Holder)), 1e9, max(step, 1))),
		}
		worst.StateBytes = max(worst.StateBytes, c.StateBytes)
		if took := c.Nanos(); took > worst.TookNanos {
			worst.TookNanos = took
			text = fmt.Sprintf("%s of replica 0 stage %d take %s to %s over the %s that steps leave of %s", plan.Size(c.StateBytes), s,
				plan.Duration(took), p.label(place.Holder), plan.Bandwidth(c.LeftOver()), plan.Bandwidth(c.BytesPerS))
			if !measured {
				text += ", as assumed"
			}
		}
	}
	if worst.TookNanos < 0 {
		return nil
	}
	cadence := worst.Cadence(holders.Rate{})
	steps := cadence.Steps(int64(step))
	often := fmt.Sprintf("every %s (%s) or so, %s", plan.Count(int(steps), "step"), plan.Duration(schedule.Nanos(steps)*step), cadence.Why.Text())
	if asked := p.in.Run.Train.CheckpointEvery; asked > 0 {
		often = fmt.Sprintf("every %s as asked", plan.Count(int(asked), "step"))
	}
	return []plan.Reason{{Kind: plan.ReasonHolder, Text: fmt.Sprintf("checkpoints with copies %s: the %s", often, text)}}
}

// mostTraffic bounds bytes of a step so that sums of them do not overflow.
const mostTraffic = 1 << 52

// traffic returns how many bytes the steps of a plan send from one peer to another in a step: tensors between stages, and
// gradients that replicas of a layer add up.
func (p *problem) traffic(of plan.Plan, from, to plan.PeerID) (bytes int64) {
	for _, pipe := range of.Replicas {
		for s := 1; s < len(pipe.Stages); s++ {
			a, b := pipe.Stages[s-1], pipe.Stages[s]
			if a.Peer == from && b.Peer == to || a.Peer == to && b.Peer == from {
				codec, _ := plan.ParseCodec(a.Codec) // none is float32
				each := codec.Bytes(cost.Elements(p.in.Costs[a.Layers.End-1].BoundaryBytes), int64(p.in.Run.Model.Channels))
				bytes += min(min(each, mostTraffic>>20)*int64(pipe.Micros), mostTraffic)
			}
		}
	}
	for r, pipe := range of.Replicas {
		for _, a := range pipe.Stages {
			if a.Peer != from {
				continue
			}
			for q, other := range of.Replicas {
				for _, b := range other.Stages {
					if r != q && b.Peer == to {
						for l := max(a.Layers.First, b.Layers.First); l < min(a.Layers.End, b.Layers.End); l++ {
							bytes += 2 * min(p.in.Costs[l].ParamBytes, mostTraffic>>20) // sums one way, results the other
						}
					}
				}
			}
		}
	}
	return min(bytes, mostTraffic)
}

// stateBytes returns the size of one checkpoint of some layers: parameters and moments in float32.
func (p *problem) stateBytes(layers plan.LayerRange) (bytes int64) {
	for _, k := range p.in.Costs[layers.First:layers.End] {
		bytes += k.ParamBytes + plan.MomentBytes(k)
	}
	return bytes
}

// checkpointBytes returns the size of the checkpoints of some layers on one disk: one, as often as the run keeps
// checkpoints.
func (p *problem) checkpointBytes(layers plan.LayerRange) int64 {
	return p.stateBytes(layers) * int64(max(1, min(p.in.Run.Train.KeepCheckpoints, 1<<10)))
}

// keeps reports whether a peer has checkpoints of the same stage under the plan in force, its own or
// copies: what its disk has free is besides them.
func (p *problem) keeps(peer plan.PeerID, at plan.StageID, layers plan.LayerRange) bool {
	prev := p.in.Previous
	if prev == nil || int(at.Replica) >= len(prev.Replicas) || int(at.Stage) >= len(prev.Replicas[at.Replica].Stages) {
		return false
	}
	was := prev.At(at)
	return (was.Peer == peer || was.Holder == peer) && was.Layers == layers
}
