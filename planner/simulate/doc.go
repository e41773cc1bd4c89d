// Package simulate plays a whole run through, from the first machine to the last: steps, losses, notices, joins, state on
// the way, and checkpoints. Hours take seconds, and the same input gives the same result on every architecture.
//
// It answers what a fleet is worth before anybody pays for it, and compares the answers that systems have to a loss.
//
// # Nouns
//
//   - Trace: when machines come, are told that they will go, and go. [ParseTrace] reads one, [Synthetic] makes one.
//   - Fleet: the machines of a cluster file, as many times over as a trace needs [fleet.go].
//   - Policy: what a system does about losses, notices and joins: [Policies] lists them [pnode.go, rivals.go].
//   - Constants: how long the parts of an answer take, and who measured that [constants.go].
//   - Result: where the time went [result.go].
//
// # How a run is played
//
// [Config.Play] takes events from a heap, the earliest first [play.go]. Between two of them the run waits, pauses or is in a
// step. Every plan is one of planner.Make, for the machines that live at that moment [plans.go], and seated knows which
// machine has which of its parts [seats.go]. When a better plan is taken is decided by planner.Decision, and checkpoints
// come as often as packages holders and departures say. So the room knows no rule of planning of its own.
//
// # What it leaves out
//
// Steps take what the planner predicts. Links have their own rate, whatever else they carry. Messages for a replay are kept
// as long as it needs them. A machine outside the fleet, the owner's, has the last whole checkpoint but one, and never fails.
//
// The package is pure: no input or output, no clock, no goroutine. pnode simulate calls it. It imports planner and some of
// its parts, none of which knows it.
package simulate
