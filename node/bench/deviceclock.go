package bench

import (
	"errors"
	"slices"

	"pnode/kernels"
)

// clocked waits for events of a queue, the last one first, and tells whether the device says when it
// came to each. A device without a clock is seen to have come to all of them with the last; a queue
// that does each call at once records when the host got there.
func clocked(events []kernels.Event) (bool, error) {
	for _, e := range slices.Backward(events) {
		if err := e.Sync(); err != nil {
			return false, err
		}
	}
	for i, e := range events {
		if _, passed := e.(kernels.Passed); passed || i > 0 && !e.Time().After(events[i-1].Time()) {
			return false, nil
		}
	}
	return true, nil
}

// clockFloats take a device longer to fill than a step of its clock.
const clockFloats = 4 << 20

// hasClock finds out whether the device says when it came to events.
func hasClock(d kernels.Device) (has bool, err error) {
	buffer, err := d.Alloc(kernels.F32, clockFloats)
	if err != nil {
		return false, err
	}
	defer buffer.Free()
	q, err := d.NewQueue()
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, q.Close()) }()
	fill := func() kernels.Event {
		q.Do(kernels.Fill(kernels.Whole(buffer), clockFloats, 1))
		return q.Record()
	}
	fill()
	if err := q.Sync(); err != nil { // compares clocks
		return false, err
	}
	return clocked([]kernels.Event{fill(), fill()})
}
