package partition

import "pnode/pipeline/schedule"

// Rate is how fast a replica gets through micro-batches: the first takes First, each
// further one Each.
type Rate struct{ First, Each schedule.Nanos }

// Shares divides micros among replicas, at least one for each, such that the last
// replica to finish does so as early as possible; it returns nil when there are fewer
// micro-batches than replicas. Each further micro-batch goes to the replica that would
// finish it first, the lowest index among equals: times only grow, so no other choice
// ends earlier.
func Shares(micros int, rates []Rate) []int {
	if len(rates) == 0 || micros < len(rates) {
		return nil
	}
	shares := make([]int, len(rates))
	done := make([]schedule.Nanos, len(rates)) // with one more micro-batch
	for r, rate := range rates {
		shares[r], done[r] = 1, rate.First+rate.Each
	}
	for range micros - len(rates) {
		first := 0
		for r := range done {
			if done[r] < done[first] {
				first = r
			}
		}
		shares[first]++
		done[first] += rates[first].Each
	}
	return shares
}
