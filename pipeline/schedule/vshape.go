package schedule

import "slices"

// VHalf has two chunks a worker in a V like ZBV, and keeps about half the activations of
// 1F1B: the forwards of the first chunk and the backwards of it follow each other from
// worker to worker in two slots, the others in one (Qi et al., Pipeline Parallelism with
// Controllable Memory, NeurIPS 2024, section 3).
func VHalf(s Shape) (Schedule, error) {
	return building(s, func(p, r int) [4]int {
		gap := 0
		if p%2 == 0 {
			gap = 3 // or two of the four would fall into one slot
		}
		return [4]int{2 * r, 3*p - 2 - r, 3*p - 1 + gap + 2*r, 6*p - 2 + gap - r}
	})
}

// VMin has two chunks a worker in a V like ZBV, with every action one slot after that of
// the worker before: it keeps about a third of the activations of 1F1B (Qi et al., 2024).
func VMin(s Shape) (Schedule, error) {
	return building(s, func(p, r int) [4]int {
		gap := 0
		if p%3 == 0 {
			gap = 2
		}
		return [4]int{r, 2*p - 1 - r, 2*p + gap + r, 4*p - 1 + gap - r}
	})
}

// period is how many slots a micro-batch takes of each worker: three for each chunk.
const period = 6

// building repeats a building block every period: slots gives for worker r when it
// computes the forwards of its two chunks, then the input gradients of the second and the
// first one. Weight gradients fill other slots. Then everything moves as early as it can
// without more memory than that.
func building(s Shape, slots func(workers, r int) [4]int) (Schedule, error) {
	p, err := Options{Shape: s}.workers(2)
	if err != nil {
		return Schedule{}, err
	}
	blocks := make([][4]int, p)
	most := 0
	for r := range blocks {
		blocks[r] = slots(p, r)
		most = max(most, blockPeak(blocks[r], s.Micros))
	}
	l := lister{
		shape: s, holder: vPlacement(p, 2), strict: true, split: true, cap: most,
		rank: func(op Op, stage, micro int) int {
			slot := 0 // forward of the first chunk
			r := stage
			if stage >= p {
				slot, r = 1, 2*p-1-stage
			}
			if op == Backward {
				slot = 3 - slot
			}
			return blocks[r][slot] + period*micro
		},
	}
	return l.run(p), nil
}

// blockPeak is how many activations a worker keeps when a block is repeated and weight
// gradients take the first empty slots.
func blockPeak(block [4]int, micros int) int {
	type event struct{ slot, kind int }
	var events []event
	for m := range micros {
		for kind, slot := range block {
			events = append(events, event{slot + period*m, kind})
		}
	}
	slices.SortFunc(events, func(a, b event) int { return a.slot - b.slot })
	live, owed, peak := 0, 0, 0
	now := 0
	for _, e := range events {
		paid := min(owed, max(0, e.slot-now))
		live, owed = live-paid, owed-paid
		if now = max(now, e.slot) + 1; e.kind < 2 {
			live++
			peak = max(peak, live)
		} else {
			owed++
		}
	}
	return peak
}

// vPlacement puts stages on workers in turns: down, up, down and so on.
func vPlacement(workers, chunks int) []int {
	holder := make([]int, workers*chunks)
	for s := range holder {
		holder[s] = s % workers
		if s/workers%2 == 1 {
			holder[s] = workers - 1 - s%workers
		}
	}
	return holder
}

// Hanayo lets micro-batches run in waves down and up the workers, two chunks a wave on
// each (Liu et al., Hanayo, SC 2023): the bubble shrinks with the number of waves without
// a second copy of the model. Options: Chunks, an even number (default 2, one wave), and
// Depth: so many micro-batches for each worker are under way (default 2; 1 keeps no more
// activations than 1F1B, but stands still between as many micro-batches as workers).
func Hanayo(o Options) (Schedule, error) {
	chunks, depth := orDefault(o.Chunks, 2), orDefault(o.Depth, 2)
	workers, err := o.workers(chunks)
	if err != nil {
		return Schedule{}, err
	}
	if chunks%2 != 0 {
		return Schedule{}, badField("chunks", chunks, "an even number, two for each wave")
	}
	if err := atLeastOne("depth", depth); err != nil {
		return Schedule{}, err
	}
	l := lister{
		shape: o.Shape, holder: vPlacement(workers, chunks), inFlight: depth * workers,
		rank: func(_ Op, _, micro int) int { return micro }, // the oldest first
	}
	return l.run(workers), nil
}
