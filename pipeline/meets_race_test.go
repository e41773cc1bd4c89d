//go:build race

package pipeline

// meets reports whether the i-th of some things is tested with the j-th of n others. Under the race
// detector, which makes it take three times as long, each of either kind has its turn at least once:
// goroutines meet by the cut and code differs by the model, and neither by both.
func meets(i, j, n int) bool { return i%n == j%n }
