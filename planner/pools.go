package planner

import (
	"cmp"
	"slices"

	"pnode/planner/cost"
	"pnode/planner/plan"
)

// gapTimes is how many times as fast as the next device the slowest of a pool is.
const gapTimes = 64

// Devices returns how many devices can get a stage. Errors wrap plan.ErrBadInput.
func Devices(in Input) (int, error) {
	if err := in.check(); err != nil {
		return 0, err
	}
	p, err := newProblem(in)
	if err != nil {
		return 0, err
	}
	most := 0
	for _, as := range p.precision().Storages {
		m, err := p.costModel(as)
		if err != nil {
			return 0, err
		}
		most = max(most, len(roomy(m)))
	}
	return most, nil
}

// roomy returns the devices that have the memory for a stage of some layer; all where none has.
func (s *search) roomy() []int {
	pool := roomy(s.models.whole())
	if len(pool) > 0 {
		return pool
	}
	for d := range s.problem.devices {
		pool = append(pool, d)
	}
	return pool
}

func roomy(m *cost.Model) (pool []int) {
	for d := range m.Devices {
		if !cramped(m, d) {
			pool = append(pool, d)
		}
	}
	return pool
}

// cramped reports whether a device has no memory for a stage of any layer, not even with its optimizer state
// elsewhere and all of its activations recomputed.
func cramped(m *cost.Model, d int) bool {
	free := m.Devices[d].FreeBytes - m.Memory.Slot()
	for l := range m.Memory.Layers() {
		if m.On(d).Fixed(l, l+1, false)-m.Memory.Moments(l, l+1) <= free {
			return false
		}
	}
	return true
}

// quicker returns pools without the slowest devices, which end where the next device is gapTimes slower: beside the
// others such devices only mislead what is tried of many orders. There are at most two, the smallest with
// devices of all nodes, and of all nodes but one, whatever a node says of itself.
func (s *search) quicker(pool []int) (pools [][]int) {
	devices := s.models.whole().Devices
	sorted := slices.Clone(pool)
	slices.SortStableFunc(sorted, func(a, b int) int { return cmp.Compare(devices[a].Whole(), devices[b].Whole()) })
	nodes, seen := s.nodes(pool), map[int]bool{}
	for i := 1; i < len(sorted); i++ {
		missing := nodes - s.nodes(sorted[:i])
		if missing > 1 || seen[missing] || devices[sorted[i]].Whole()/gapTimes < devices[sorted[i-1]].Whole() {
			continue
		}
		seen[missing] = true
		some := slices.Clone(sorted[:i])
		slices.Sort(some)
		pools = append(pools, some)
	}
	return pools
}

// nodes counts the nodes that devices are of.
func (p *problem) nodes(devices []int) int {
	peers := map[plan.PeerID]bool{}
	for _, d := range devices {
		peers[p.devices[d].peer] = true
	}
	return len(peers)
}

// within returns the shapes of at most so many devices.
func within(shapes []bounded, devices int) []bounded {
	return slices.DeleteFunc(slices.Clone(shapes), func(b bounded) bool { return b.devices() > devices })
}
