package screen

import (
	"fmt"
	"math"
	"strings"

	"pnode/node/api"
)

// bars draw a value between the least and the greatest one.
var bars = []rune("▁▂▃▄▅▆▇█")

// leastCurve is how many cells a curve is worth showing in.
const leastCurve = 8

// curve draws the training loss of all steps on one line, between its first and its newest value.
func (v View) curve() part {
	points := v.History.Train.Points
	if len(points) < 2 {
		return part{}
	}
	first, last := fmt.Sprintf("loss %.2f ", points[0].Mean), fmt.Sprintf(" %.2f", points[len(points)-1].Mean)
	room := v.Columns - width(first) - width(last)
	if room < leastCurve {
		return part{}
	}
	return part{lines: []line{{{first, plainly}, {sparkline(points, room), good}, {last, plainly}}}}
}

// sparkline draws points as at most room characters, each the mean of as many points as the others.
func sparkline(points []api.Point, room int) string {
	n := min(room, len(points))
	means := make([]float64, 0, n)
	low, high := math.Inf(1), math.Inf(-1)
	for i := range n {
		sum, count := 0.0, 0.0
		for _, p := range points[i*len(points)/n : (i+1)*len(points)/n] {
			weight := float64(max(p.Count, 1))
			sum, count = sum+weight*p.Mean, count+weight
		}
		mean := sum / count
		means = append(means, mean)
		if !math.IsNaN(mean) {
			low, high = min(low, mean), max(high, mean)
		}
	}
	var b strings.Builder
	for _, m := range means {
		at := 0
		if high > low && !math.IsNaN(m) {
			at = int((m - low) / (high - low) * float64(len(bars)-1))
		}
		b.WriteRune(bars[max(0, min(at, len(bars)-1))])
	}
	return b.String()
}
