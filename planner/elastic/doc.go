// Package elastic chooses how a pipeline runs whose stages, links and memory are given: how
// many micro-batches each stage keeps in flight, what it recomputes to make room for them,
// and which boundaries send fewer bits. It says what sets the period that results.
//
// Nouns:
//
//   - Problem: stages with times and memory, boundaries with links.
//   - Frontier: what a stage can drop, the most bytes for a second of recomputation first.
//   - Option: a point of it, with so many layers restored ahead of the gradient, in waits.
//   - Decision: warm-ups, levels of recomputation, codecs, and the predicted period.
//   - Interleaving, Grouping: a pipeline whose workers hold several stages each, and how
//     micro-batches go together through them.
//   - Bound: what sets that period, and what would help.
//
// The rules are those of the elastic in-flight schedule: the least period for which
// every stage has the memory, found by bisection; a longer period never needs more memory. For a
// period each stage from the last to the first takes the option that demands least of those
// before it, which is exact (schedule.Demand).
//
// The planner calls it for every cut that it considers, and again while a run trains, with
// times that were measured. It imports pipeline/schedule for the
// periods, pipeline/model for the levels of recomputation, and planner's cost and plan for links and
// codecs.
package elastic
