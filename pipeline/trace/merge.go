package trace

import (
	"maps"
	"math"

	"pnode/pipeline/schedule"
	"pnode/planner/plan"
)

// message is a boundary tensor on its way, by the receive that it is for.
type message struct {
	Key
	receive schedule.Action
}

// Merge puts traces of nodes onto the clock of the first. A node whose messages lead to no
// other keeps its own.
func Merge(traces ...Trace) Trace {
	out := Trace{Names: map[int]string{}, Peers: map[int]plan.PeerID{}}
	for i, shift := range shifts(traces) {
		maps.Copy(out.Names, traces[i].Names)
		maps.Copy(out.Peers, traces[i].Peers)
		for _, s := range traces[i].Spans {
			s.Start, s.End = s.Start+shift, s.End+shift
			out.Spans = append(out.Spans, s)
		}
		for _, c := range traces[i].Copies {
			c.Start, c.End = c.Start+shift, c.End+shift
			out.Copies = append(out.Copies, c)
		}
	}
	return out
}

// shifts returns what to add to the times of each trace.
func shifts(traces []Trace) []int64 {
	delays := quickest(traces)
	shift, known := make([]int64, len(traces)), make([]bool, len(traces))
	for root := range traces {
		if known[root] {
			continue
		}
		known[root] = true
		for queue := []int{root}; len(queue) > 0; queue = queue[1:] {
			a := queue[0]
			for b := range traces {
				there, back := delays[[2]int{a, b}], delays[[2]int{b, a}]
				if known[b] || there == nil || back == nil {
					continue
				}
				// b's clock is ahead of a's by what the way there seems to take too much.
				shift[b], known[b] = shift[a]-(*there-*back)/2, true
				queue = append(queue, b)
			}
		}
	}
	return shift
}

// quickest returns by (from, to) trace the least time between the end of a send and that of its
// receive, each on its own node's clock.
func quickest(traces []Trace) map[[2]int]*int64 {
	type sent struct {
		trace int
		at    int64
	}
	sends := map[message]sent{}
	for i, t := range traces {
		for _, s := range t.Spans {
			if receive, ok := s.Action.Answered(); ok {
				sends[message{Key{s.Generation, s.Step}, receive}] = sent{i, s.End}
			}
		}
	}
	least := map[[2]int]*int64{}
	for i, t := range traces {
		for _, s := range t.Spans {
			m := message{Key{s.Generation, s.Step}, s.Action}
			from, ok := sends[m]
			if !ok || from.trace == i {
				continue
			}
			way := [2]int{from.trace, i}
			if least[way] == nil {
				least[way] = new(int64)
				*least[way] = math.MaxInt64
			}
			*least[way] = min(*least[way], s.End-from.at)
		}
	}
	return least
}
