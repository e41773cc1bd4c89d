package dataset

import "math"

// BigramEntropy is the plug-in estimate of the entropy of a byte given the one before it,
// in nats: the loss of the best model that sees one byte of context, on the text it was
// counted on. Fewer than two bytes give 0.
func BigramEntropy(text []byte) float64 {
	if len(text) < 2 {
		return 0
	}
	pairs := make([][256]int64, 256) // [previous][next]
	for i, next := range text[1:] {
		pairs[text[i]][next]++
	}
	sum := 0.0
	for _, row := range pairs {
		var total int64
		for _, n := range row {
			total += n
		}
		for _, n := range row {
			if n > 0 {
				sum -= float64(n) * math.Log(float64(n)/float64(total))
			}
		}
	}
	return sum / float64(len(text)-1)
}
