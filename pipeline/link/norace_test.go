//go:build !race

package link

// raced says that the race detector is on.
const raced = false
