// Package layout fits stages onto devices under schedules whose order does not follow from warm-ups
// alone: what the programs keep and how long they take is read off the programs that workers run.
//
// Nouns:
//
//   - Layout: stages with programs and codecs. Boundary: a place between two stages.
//   - Budget: how much the search may still simulate. NoFit: which device is too small.
//
// Fit has devices recompute what does not fit, and fills the waits for gradients with it. Widen
// takes the most exact codecs that cost no time. Time runs the programs.
//
// The planner makes layouts of plans and explains them. The package decides nothing about devices
// and layers, and knows no peers. It imports pipeline/schedule, pipeline/model and planner's cost,
// elastic and plan.
package layout
