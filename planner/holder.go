package planner

import (
	"cmp"
	"fmt"

	"pnode/planner/plan"
)

// maxHolderLines bounds the reasons about holders.
const maxHolderLines = 8

// assignHolders gives each placement another node that keeps a copy of its checkpoints.
// It prefers a node whose disk has room for the copy, then one that computes neither the stage
// nor a neighbour of it, since what takes one away may take its neighbours too, then the one with
// the fewest copies so far. Without another node there is no holder. The reasons name holders
// that were passed over, or taken, without room on their disks.
func (c *cluster) assignHolders(p *plan.Plan) (reasons []plan.Reason) {
	copies, left := map[plan.PeerID]int{}, c.diskRoom()
	for r := range p.Replicas {
		stages := p.Replicas[r].Stages
		for s := range stages {
			near := map[plan.PeerID]bool{}
			for n := max(s-1, 0); n <= min(s+1, len(stages)-1); n++ {
				near[stages[n].Peer] = true
			}
			at := plan.StageID{Replica: plan.Replica(r), Stage: plan.Stage(s)}
			need := c.copyBytes(stages[s].Layers)
			fits := func(m Member) bool { return left == nil || left[m.Peer] >= need || c.keepsCopy(m.Peer, at, stages[s]) }
			var holder, roomless *Member  // the best, and the best were disks no matter
			for i := range c.in.Members { // sorted by peer: the first of equals stays
				m := &c.in.Members[i]
				if m.Draining || m.Peer == stages[s].Peer {
					continue
				}
				better := func(than *Member) int {
					return cmp.Or(compareBool(near[m.Peer], near[than.Peer]), cmp.Compare(copies[m.Peer], copies[than.Peer]))
				}
				if roomless == nil || better(roomless) < 0 {
					roomless = m
				}
				if holder == nil || cmp.Or(compareBool(!fits(*m), !fits(*holder)), better(holder)) < 0 {
					holder = m
				}
			}
			if holder == nil {
				continue
			}
			what := fmt.Sprintf("replica %d stage %d: its checkpoints take %s", r, s, plan.Size(need))
			text := ""
			switch {
			case !fits(*holder):
				text = fmt.Sprintf("%s, the disk of no other node has that much free: %s keeps the copy and may run out of room", what, holder.label())
			case holder != roomless:
				text = fmt.Sprintf("%s: %s keeps the copy, not %s, whose disk has %s free", what, holder.label(), roomless.label(), plan.Size(max(0, left[roomless.Peer])))
			}
			if text != "" && len(reasons) < maxHolderLines {
				reasons = append(reasons, plan.Reason{Kind: plan.ReasonHolder, Text: text})
			}
			stages[s].Holder = holder.Peer
			copies[holder.Peer]++
			if left != nil && !c.keepsCopy(holder.Peer, at, stages[s]) {
				left[holder.Peer] -= need
			}
		}
	}
	return reasons
}

// diskRoom returns the free bytes of each member's disk; nil where nobody measured any.
func (c *cluster) diskRoom() map[plan.PeerID]int64 {
	var left map[plan.PeerID]int64
	for _, m := range c.in.Members {
		if m.Profile.DiskFreeBytes > 0 {
			left = map[plan.PeerID]int64{}
		}
	}
	for _, m := range c.in.Members {
		if left != nil {
			left[m.Peer] = m.Profile.DiskFreeBytes
		}
	}
	return left
}

// copyBytes returns the size of the checkpoints of some layers that a holder keeps: parameters
// and moments in float32, as often as the run keeps checkpoints.
func (c *cluster) copyBytes(layers plan.LayerRange) (bytes int64) {
	for _, k := range c.in.Costs[layers.First:layers.End] {
		bytes += k.ParamBytes + plan.MomentVectors*(k.ParamBytes-k.FrozenBytes)
	}
	return bytes * int64(max(1, min(c.in.Run.Train.KeepCheckpoints, 1<<10)))
}

// keepsCopy reports whether a peer keeps copies of the same stage under the previous plan: its
// free space is what they leave.
func (c *cluster) keepsCopy(peer plan.PeerID, at plan.StageID, place plan.Placement) bool {
	prev := c.in.Previous
	if prev == nil || int(at.Replica) >= len(prev.Replicas) || int(at.Stage) >= len(prev.Replicas[at.Replica].Stages) {
		return false
	}
	was := prev.At(at)
	return was.Holder == peer && was.Layers == place.Layers
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
