// Package cost turns work into time: floating-point operations and bytes into integer
// nanoseconds on a measured device or link. Integers, because Go may fuse x*y+z: with
// floating point two architectures could round differently and plan differently.
//
// Nouns: Device (measured speeds), Link (one direction), LayerTime (one layer on one
// device).
//
// The planner calls it. It refuses to guess: a speed of 0 takes the longest time there
// is. It imports the layer costs of pipeline/model and the time type of
// pipeline/schedule, nothing that measures.
package cost
