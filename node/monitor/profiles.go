package monitor

import (
	"maps"
	"slices"
	"strings"

	"pnode/node/api"
	"pnode/node/gossip"
	"pnode/planner"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// Profiles returns what plans know of the devices and lines of members that are not gone, beside what the newest step of the current
// plan took. The error wraps api.ErrNotReady before the run is known.
func Profiles(state consensus.State, beats *gossip.Tracker) (out api.Profiles, err error) {
	if state.Run == nil {
		return out, api.NotReady("the run is not known here yet")
	}
	out = api.Profiles{Devices: []api.DeviceProfile{}, Links: []api.LinkProfile{}}
	running, _ := beats.Running(state.Plan)
	var seen planner.Measured
	var computing, computed map[plan.WorkerID]int64
	if running.Generation != 0 {
		seen, _ = beats.Seen(running)
		in := planner.InputOf(*state.Run)
		in.Members = membersAround(state, running)
		computing, _ = planner.Computing(in, running) // none where a device of the plan was just lost, until the next one
		computed = planner.Computed(running, seen.Stages)
	}
	here, held := map[plan.PeerID]bool{}, heldBy(running)
	names, shares := consensus.NamesOf(state), map[plan.PeerID]int64{}
	for _, c := range state.Counted() {
		if c.ClaimedFLOPS > 0 {
			shares[c.Peer] = int64(float64(c.FLOPS) / float64(c.ClaimedFLOPS) * 1000)
		}
	}
	for _, m := range state.Members {
		if m.State == consensus.Gone {
			continue
		}
		here[m.Peer] = true
		share, counted := shares[m.Peer]
		if !counted {
			share = 1000
		}
		for _, d := range m.Profile.Devices {
			device := api.DeviceProfile{Peer: m.Peer, Node: names[m.Peer], DeviceProfile: d, CountedPermille: share}
			worker := plan.WorkerID{Peer: m.Peer, Device: d.Name}
			for _, at := range held[worker] {
				device.Layers = append(device.Layers, running.At(at).Layers)
			}
			device.PlannedMS, device.MeasuredMS = milliseconds(computing[worker]), milliseconds(computed[worker])
			out.Devices = append(out.Devices, device)
		}
	}
	slices.SortStableFunc(out.Devices, func(a, b api.DeviceProfile) int { return strings.Compare(a.Node, b.Node) })
	known, used := newFigures(state, seen), neighbours(running)
	uses := map[[2]plan.PeerID]bool{}
	for _, e := range used {
		uses[e] = true
	}
	ends := slices.AppendSeq(slices.Clone(used), maps.Keys(known.links))
	if len(here) <= mostAssumed {
		ends = append(ends, pairs(here)...)
	}
	slices.SortFunc(ends, func(a, b [2]plan.PeerID) int { return slices.Compare(a[:], b[:]) })
	assumed := planner.LinksOf(measuring(state, here))
	for _, e := range slices.Compact(ends) {
		if !here[e[0]] || !here[e[1]] {
			continue
		}
		line := api.LinkProfile{LinkStatus: known.linkStatus(e), FromNode: names[e[0]], ToNode: names[e[1]], Used: uses[e]}
		if line.BytesPerS == 0 && line.RTTMS == 0 {
			link, _ := assumed.Between(e[0], e[1])
			line.Estimated, line.BytesPerS, line.RTTMS = true, link.BytesPerS, milliseconds(link.RTTNanos)
		}
		out.Links = append(out.Links, line)
	}
	return out, nil
}

// mostAssumed bounds the members of whom also the lines are listed that nobody measured and no plan uses: each has one to each other.
const mostAssumed = 16

// pairs returns both directions between any two peers.
func pairs(of map[plan.PeerID]bool) (all [][2]plan.PeerID) {
	for from := range of {
		for to := range of {
			if from != to {
				all = append(all, [2]plan.PeerID{from, to})
			}
		}
	}
	return all
}

// measuring returns members as plans see what they measured.
func measuring(state consensus.State, here map[plan.PeerID]bool) (members []planner.Member) {
	for _, m := range state.Members {
		if here[m.Peer] {
			members = append(members, planner.Member{Peer: m.Peer, Profile: m.Profile})
		}
	}
	return members
}
