// Package layout tells what stages take where they are: memory, time, and what may be computed
// again, on devices that are numbers.
//
// Nouns:
//
//   - Site: the devices and what joins them. Unit: one device.
//   - Cell: a stage of a replica on a unit. Rows: cells by replica and stage.
//   - Layout: cells under a schedule whose order does not follow from warm-ups alone. What its
//     programs keep and how long they take is read off the programs that the workers run.
//
// A layout comes with cells, programs and codecs. Fit has its units compute again what does not
// fit (fit.go, size.go) and fill the waits for gradients with it (ahead.go); Time runs the
// programs (time.go); Widen takes the most exact codecs that cost no time (codec.go). What
// follows the passes, reductions and updates, depends on rows alone (tail.go).
//
// The planner makes layouts of plans and says in words what they come to. The package knows
// neither peers nor plans, and imports pipeline/schedule, pipeline/model and planner's cost,
// elastic, memory and partition.
package layout
