//go:build race

package conform

// randomCases are fewer under the race detector, which slows the reference down by ten times:
// more shapes do not show it more goroutines.
const randomCases = 5
