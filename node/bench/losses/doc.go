// Package losses measures what settings do to the loss of a model: it trains the model with each choice of settings and several seeds, one run after
// the other, and compares held-out losses.
//
// Nouns:
//
//   - Arm: a choice of settings. The first one is what the others are compared with.
//   - Run: one arm with one seed. Runs with the same seed begin with the same parameters and read the same samples.
//   - Point: a held-out loss of a run.
//
// Everything is in one folder: what each arm is, a file of points for each run that has begun, and the run's own folder until it has ended. Who
// starts again with that folder goes on where it stopped: finished runs are read, and the one under way is resumed. Arms and seeds can be added. Nothing is timed.
//
// Package bench and the command bench losses call it. The nodes are real processes of this program (package local).
package losses
