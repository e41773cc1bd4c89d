//go:build race

package pipeline

// raced says that the race detector is on, which makes a test take three times as long.
const raced = true
