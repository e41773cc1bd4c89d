// Package nanogpt computes what a step takes by the meter of a public contest, Protocol NanoGPT
// (https://github.com/PluralisResearch/ProtocolNanoGPT, autumn of 2026): a model of 8 layers is trained as a pipeline of 8 stages, whose
// messages wait as if they came over slow lines. The meter is frozen, and everything else is the participants' to change.
//
// Nouns:
//
//   - Meter: what a message waits for at its receiver.
//   - Entry: a run whose step the contest has published, by which the meter here is checked.
//   - Trial: this program's schedule, codec and micro-batch, with the step that the meter gives it.
//
// It computes on times alone: no input or output, no clock, no goroutine. How many steps a model needs to learn as much over such messages
// no simulation says. Package bench calls it.
package nanogpt
