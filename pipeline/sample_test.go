package pipeline

import "testing"

// meets reports whether the i-th of some things is tested with the j-th of n others. A quick run, and
// one under the race detector, gives each of either kind its turn at least once: goroutines meet by the
// cut and code differs by the model, and neither by both.
func meets(i, j, n int) bool { return !raced && !testing.Short() || i%n == j%n }
