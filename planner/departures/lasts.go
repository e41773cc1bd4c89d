package departures

import (
	"slices"
	"time"
)

const (
	// maxGaps bounds the times between departures that count.
	maxGaps = 7
	// usualGap stands for a time between two departures before some were seen, and counts unseenGaps times.
	usualGap, unseenGaps = time.Hour, 2
)

// Lasts returns how long a plan is expected to last, some time after the newest entry: as long as it was between the last members
// that left or were lost, in the median, and no shorter than nobody has gone now. Arrivals end no plan, as the plan that follows one
// has to pay for itself.
func (h History) Lasts(since time.Duration) time.Duration {
	quiet, gaps := h.Gaps(since)
	gaps = gaps[:min(len(gaps), maxGaps)]
	for range unseenGaps {
		gaps = append(gaps, usualGap)
	}
	slices.Sort(gaps)
	return max(gaps[(len(gaps)-1)/2], quiet)
}
