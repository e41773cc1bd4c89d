package api

import (
	"math"

	"pnode/planner/plan"
)

const (
	// MaxPoints bounds a Curve: more than a screen has pixels to tell apart.
	MaxPoints = 1024
	// mostValue is the greatest number that a curve shows: sums of such ones are finite.
	mostValue = 1e30
	// mostEvery and mostStep are well over what a run's steps need.
	mostEvery = 1 << 40
	mostStep  = 1 << 60
)

// Curve is a quantity over the steps of a run of any length, in at most MaxPoints points: each
// stands for Every steps that follow each other, and where there are too many Every, a power of
// two, doubles.
// The zero value is empty and ready.
type Curve struct {
	Every  plan.Step `json:"every"`
	Points []Point   `json:"points"`
}

// Point sums up a curve over some steps: their mean, least and greatest value.
type Point struct {
	// Step is the newest of them, Count how many they are.
	Step  plan.Step `json:"step"`
	Count int       `json:"count"`
	Mean  float64   `json:"mean"`
	Low   float64   `json:"low"`
	High  float64   `json:"high"`
}

// add takes in the value at a step. A step that comes again, after a run went back to a checkpoint,
// replaces the earlier one. NaN and immense values have no point.
func (c *Curve) add(step plan.Step, value float64) {
	c.back(step)
	if step == 0 || math.IsNaN(value) || math.Abs(value) > mostValue {
		return
	}
	c.Every = max(c.Every, 1)
	c.put(Point{Step: step, Count: 1, Mean: value, Low: value, High: value})
	c.thin()
}

// thin doubles Every until there are no more points than may be.
func (c *Curve) thin() {
	for len(c.Points) > MaxPoints {
		points := c.Points
		c.Every *= 2
		c.Points = c.Points[:0]
		for _, p := range points {
			c.put(p) // never overtakes the reading
		}
	}
}

// back forgets a step and all later ones.
func (c *Curve) back(step plan.Step) {
	n := len(c.Points)
	for n > 0 && c.Points[n-1].Step >= step {
		n--
	}
	c.Points = c.Points[:n]
}

// put adds a point at the end, or to the last one where both are of the same steps.
func (c *Curve) put(p Point) {
	n := len(c.Points)
	if n == 0 || c.bucket(c.Points[n-1].Step) != c.bucket(p.Step) {
		c.Points = append(c.Points, p)
		return
	}
	last := &c.Points[n-1]
	whole := float64(last.Count + p.Count)
	mean := last.Mean + (p.Mean-last.Mean)*float64(p.Count)/whole
	last.Step, last.Count = p.Step, last.Count+p.Count
	last.Low, last.High = min(last.Low, p.Low), max(last.High, p.High)
	last.Mean = max(last.Low, min(last.High, mean)) // whatever rounding does
}

// bucket numbers the points that steps belong to: the first is of steps 1 to Every.
func (c *Curve) bucket(step plan.Step) plan.Step { return (step - 1) / c.Every }
