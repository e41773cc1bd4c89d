package neighbours

import "fmt"

// Arrangement holds devices in order, cut into equally long replicas: the first devices are the stages of replica 0.
type Arrangement struct {
	Replicas int
	Devices  []int
	// Ends has by stage of a single pipeline the layer after its last one. nil leaves the cut to whoever tries the arrangement.
	Ends []int
}

// Walk goes from arrangements to better ones.
type Walk struct {
	// Pool are the devices that may get a place.
	Pool []int
	// A single pipeline has FewestStages to MostStages.
	FewestStages, MostStages int
	// Left counts the arrangements that may still be tried.
	Left int
	// Try takes an arrangement that is better than the one before. It returns that with the cut that it got.
	Try func(Arrangement) (taken Arrangement, better bool)

	tried map[string]bool
}

// From goes on from an arrangement until no neighbour is better. It tries none twice, wherever it began.
func (w *Walk) From(at Arrangement) {
	for w.Left > 0 {
		next, better := w.step(at)
		if !better {
			return
		}
		at = next
	}
}

// step returns the first neighbour that is better.
func (w *Walk) step(at Arrangement) (taken Arrangement, better bool) {
	for next := range w.around(at) {
		if w.Left <= 0 {
			break
		}
		if !w.isNew(next) {
			continue
		}
		w.Left--
		if taken, better = w.Try(next); better {
			return taken, true
		}
	}
	return Arrangement{}, false
}

// isNew reports whether an arrangement has not been tried, and notes it.
func (w *Walk) isNew(a Arrangement) bool {
	if w.tried == nil {
		w.tried = map[string]bool{}
	}
	key := fmt.Sprint(a)
	known := w.tried[key]
	w.tried[key] = true
	return !known
}
