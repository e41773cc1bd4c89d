//go:build race

package link

// raced says that the race detector is on, under which a byte that is sent costs several times as much.
const raced = true
