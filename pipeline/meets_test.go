//go:build !race

package pipeline

// meets reports whether the i-th of some things is tested with the j-th of n others: all are.
func meets(_, _, _ int) bool { return true }
