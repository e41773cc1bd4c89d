//go:build !race

package pipeline

// raced says that the race detector is on.
const raced = false
