package api

import (
	"cmp"
	"fmt"
	"slices"

	"pnode/planner/plan"
)

const (
	// briefFrom is how many members that are not gone, and how many stages, Brief lists in full.
	briefFrom = 64
	// What Brief leaves: so many stages, and as many devices in a row, and so many lines of each other kind.
	briefStages, briefLines = 12, 6
	briefGroups             = 12
)

// Rest counts what a brief status leaves out.
type Rest struct {
	// Members are those that are not listed, by state, device and whether the plan has a part for them, the most first. In the last group's place are all that are left where there
	// are too many groups; it has no device.
	Members []Group `json:"members"`
	// Stages, Replicas, Devices, Links and Reasons are how many of the plan's are not listed.
	Stages   int `json:"stages"`
	Replicas int `json:"replicas,omitempty"`
	Devices  int `json:"devices"`
	Links    int `json:"links"`
	Reasons  int `json:"reasons"`
}

// Group is members in one state with one kind of device, with a part in the plan or without one.
type Group struct {
	State  string `json:"state"`
	Device string `json:"device"`
	Placed bool   `json:"placed,omitempty"`
	Count  int    `json:"count"`
}

// Brief returns a status that fits on a screen or two: of more than 64 members that are not gone, or stages, it leaves this node, the leader, who has
// one of the stages that are listed, and some that are silent or not used, and counts the others in Rest. The stages that stay are this
// node's and the slowest, the devices those around this node's first one. Where those that are gone alone are too many, they alone are counted.
func (s Status) Brief() Status {
	here := 0
	for _, m := range s.Roster {
		if m.State != "gone" {
			here++
		}
	}
	if len(s.Roster) <= briefFrom && len(s.Plan) <= briefFrom {
		return s
	}
	named := map[plan.PeerID]bool{s.Peer: true, s.Leader: true}
	if s.Substitute != nil {
		named[s.Substitute.Lost], named[s.Substitute.By] = true, true
	}
	if here <= briefFrom && len(s.Plan) <= briefFrom {
		for _, m := range s.Roster {
			named[m.Peer] = named[m.Peer] || m.Placed || m.State != "gone"
		}
		var rest Rest
		s.Roster, rest.Members = briefRoster(s.Roster, named)
		s.Rest = &rest
		return s
	}
	all := s
	s.Plan, s.Seats, s.Replicas = s.briefPlan(), s.briefSeats(), s.briefReplicas()
	near := map[plan.PeerID]bool{}
	for _, seat := range s.Seats {
		near[seat.Peer], named[seat.Peer] = true, true
	}
	for _, stage := range s.Plan {
		named[stage.Peer] = true
	}
	for _, r := range s.Replicas {
		named[r.Peer] = true
	}
	s.Links = slices.DeleteFunc(slices.Clone(s.Links), func(l LinkStatus) bool { return !near[l.From] || !near[l.To] })
	s.Reasons = s.Reasons[:min(len(s.Reasons), briefLines)]
	rest := Rest{Stages: len(all.Plan) - len(s.Plan), Replicas: len(all.Replicas) - len(s.Replicas), Devices: len(all.Seats) - len(s.Seats), Links: len(all.Links) - len(s.Links), Reasons: len(all.Reasons) - len(s.Reasons)}
	if saving := s.Checkpoint.Saving; saving != nil && len(saving.Waits) > briefLines {
		few := *saving
		few.Waits = append(slices.Clone(few.Waits[:briefLines]), fmt.Sprintf("%d more", len(few.Waits)-briefLines))
		s.Checkpoint.Saving = &few
	}
	s.Roster, rest.Members = briefRoster(s.Roster, named)
	s.Rest = &rest
	return s
}

// briefReplicas returns those that are silent or left out, this node's, and those that have the most inner steps before them, in order.
func (s Status) briefReplicas() []ReplicaStatus {
	list := slices.Clone(s.Replicas)
	rank := func(r ReplicaStatus) int {
		switch {
		case r.State == ReplicaSilent || r.State == ReplicaLeftOut:
			return 0
		case r.Peer == s.Peer:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(list, func(a, b ReplicaStatus) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Made, b.Made))
	})
	list = list[:min(len(list), briefStages)]
	slices.SortFunc(list, func(a, b ReplicaStatus) int { return cmp.Compare(a.Replica, b.Replica) })
	return list
}

// briefPlan returns this node's stages and the slowest of the others, in the plan's order.
func (s Status) briefPlan() []StageStatus {
	order := make([]int, len(s.Plan))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := s.Plan[a], s.Plan[b]
		if own := x.Peer == s.Peer; own != (y.Peer == s.Peer) {
			return compareBool(y.Peer == s.Peer, own)
		}
		return cmp.Compare(y.ForwardMS+y.BackwardMS+y.UpdateMS, x.ForwardMS+x.BackwardMS+x.UpdateMS)
	})
	order = order[:min(len(order), briefStages)]
	slices.Sort(order)
	var out []StageStatus
	for _, i := range order {
		out = append(out, s.Plan[i])
	}
	return out
}

// compareBool orders false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// briefSeats returns the devices around this node's first one, or the first ones: they neighbour each other.
func (s Status) briefSeats() []SeatStatus {
	own := slices.IndexFunc(s.Seats, func(seat SeatStatus) bool { return seat.Peer == s.Peer })
	first := max(0, min(own-briefStages/2, len(s.Seats)-briefStages))
	return s.Seats[first:min(len(s.Seats), first+briefStages)]
}

// briefRoster returns the members that are named, with some of whom there is something to say, and counts the others.
func briefRoster(roster []Member, named map[plan.PeerID]bool) (listed []Member, rest []Group) {
	said := map[string]int{}
	room := func(kind string) bool {
		said[kind]++
		return said[kind] <= briefLines
	}
	groups := map[Group]int{}
	for _, m := range roster {
		stays := named[m.Peer]
		switch {
		case stays:
		case m.State == "gone":
		case m.NotUsed != "":
			stays = room("not used")
		case m.State != "active":
			stays = room(m.State)
		}
		if stays {
			listed = append(listed, m)
			continue
		}
		groups[Group{State: m.State, Device: m.Kind, Placed: m.Placed}]++
	}
	for g, n := range groups {
		g.Count = n
		rest = append(rest, g)
	}
	slices.SortFunc(rest, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.State, b.State), cmp.Compare(a.Device, b.Device), compareBool(b.Placed, a.Placed))
	})
	if len(rest) > briefGroups {
		last := Group{}
		for _, g := range rest[briefGroups-1:] {
			last.Count += g.Count
		}
		rest = append(rest[:briefGroups-1:briefGroups-1], last)
	}
	return listed, rest
}
