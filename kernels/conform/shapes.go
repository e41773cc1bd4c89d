//go:build !race

package conform

// randomCases is the number of random shapes for each op.
const randomCases = 25
