// Package report says what a plan means: who computes what, how long it takes and what for, who has nothing to do,
// and what would change that.
//
// Nouns:
//
//   - Report: all figures of a plan for people and scripts. It is a value; text, JSON and picture are made of it.
//   - Device, LeftOut, Next: its rows.
//   - Variant: other settings of the run under which more devices are of use, as the planner found by trying.
//
// `pnode plan` prints it. The package decides nothing: plans come from the planner. It reads no file and no clock.
package report
