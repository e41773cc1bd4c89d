// Package witness has coordinators of replicas with local steps that contradict each other show what they have told the log, and checks it.
//
// Nouns:
//
//   - A Hearing is of one round. Both coordinators of a contradiction are asked for what they have of the replica that it is about, one contradiction after
//     the other: seals.Exhibit, in which every message has the seal of who sent it.
//   - Of a replica that had ended its part of the round before it might, rounds.Round.Hasty, the one that says so is asked.
//   - A contradiction that has one in it who was found out before is not asked about: it follows from that.
//
// Work is bounded, whatever replicas say: no more than mostOpen contradictions are asked about in vain, and all of it ends after patience. The package rules on
// nothing: blame.Dispute does.
//
// Goroutines: one for each hearing, for which Wait waits. Caller: package leader.
package witness
