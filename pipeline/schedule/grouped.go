package schedule

import (
	"fmt"
	"slices"
)

// Grouped is interleaved 1F1B over several chunks a worker, stage s on worker s modulo
// workers, with micro-batches that go together in groups (PipeMesh, TPDS 2025). The
// tables of both directions list, for each group, for each chunk, each micro-batch of the
// group, the backward with its chunks in reverse; a worker starts Depth*(workers-1-r) +
// (chunks-1)*firstgroup forwards ahead and then alternates. Equal groups of as many
// micro-batches as workers are depth-first (Narayanan et al., Megatron-LM, SC 2021),
// one group of all is breadth-first (Lamy-Poirier, 2023; Fold3D).
//
// Options: Chunks (default 2), Depth (2, or 1 with one chunk), Group (workers), or
// Forward and Backward groups in its place.
func Grouped(o Options) (Schedule, error) {
	chunks := orDefault(o.Chunks, 2)
	workers, err := o.workers(chunks)
	if err != nil {
		return Schedule{}, err
	}
	depth := orDefault(o.Depth, min(chunks, 2))
	if err := atLeastOne("depth", depth); err != nil {
		return Schedule{}, err
	}
	least := (depth*(workers-1) + 2) / 2 // a smaller group waits for gradients that it keeps from being made
	forward, err := o.groups("forward", o.Forward, workers, least)
	if err != nil {
		return Schedule{}, err
	}
	backward, err := o.groups("backward", o.Backward, workers, least)
	if err != nil {
		return Schedule{}, err
	}
	forth, back := table(forward, chunks), table(backward, chunks)
	out := Schedule{Workers: make([][]Action, workers)}
	for r := range out.Workers {
		p := program{shape: o.Shape, actions: make([]Action, 0, 2*len(forth))}
		warmup := min(depth*(workers-1-r)+(chunks-1)*forward[0], len(forth))
		for i := range len(forth) + warmup {
			if i < len(forth) {
				p.put(Forward, forth[i].chunk*workers+r, forth[i].micro)
			}
			if i >= warmup {
				b := back[i-warmup]
				p.put(Backward, (chunks-1-b.chunk)*workers+r, b.micro)
			}
		}
		out.Workers[r] = p.actions
	}
	return out, nil
}

// groups are the given ones, or equal ones of Group micro-batches. The rest is a group of
// its own if it has at least so many; otherwise the first groups are larger by one or
// more, not the last: the warm-up counts with the first.
func (o Options) groups(name string, given []int, workers, least int) ([]int, error) {
	if given != nil {
		sum := 0
		for _, g := range given {
			if g < 1 || g > o.Micros {
				return nil, fmt.Errorf("%w: %s groups %v, want numbers from 1 to %d micro-batches", ErrBadShape, name, given, o.Micros)
			}
			sum += g
		}
		if sum != o.Micros {
			return nil, fmt.Errorf("%w: %s groups %v have %d micro-batches, want %d", ErrBadShape, name, given, sum, o.Micros)
		}
		return given, nil
	}
	size := orDefault(o.Group, workers)
	if err := atLeastOne("group", size); err != nil {
		return nil, err
	}
	rest, count := o.Micros%size, max(o.Micros/size, 1)
	if rest == 0 || rest >= least {
		equal := slices.Repeat([]int{size}, o.Micros/size)
		if rest > 0 {
			equal = append(equal, rest)
		}
		return equal, nil
	}
	equal := slices.Repeat([]int{o.Micros / count}, count)
	for i := range o.Micros % count {
		equal[i]++
	}
	return equal, nil
}

type tableEntry struct{ micro, chunk int }

// table is the order in which chunks of micro-batches are started.
func table(groups []int, chunks int) []tableEntry {
	var t []tableEntry
	first := 0
	for _, g := range groups {
		for c := range chunks {
			for m := first; m < first+g; m++ {
				t = append(t, tableEntry{m, c})
			}
		}
		first += g
	}
	return t
}
