// Package rounds has the rules by which replicas with local steps agree on their outer steps. The log is where they do: each replica
// says what messages it has, the leader ends rounds early and leaves out who is gone, and all nodes come to the same outer step
// from the same entries.
//
// Nouns:
//
//   - Round is the state of a round under way: the inner steps since the last outer step, or since the plan began.
//   - A replica is awaited until it is left out. A round is merged once each awaited replica has said that it has the messages
//     of all awaited ones.
//   - Counted are the replicas whose messages all that go on have alike. One that has died counts too, where its messages had come
//     everywhere.
//   - A quorum has half of a step's micro-batches or more. Awaited and counted replicas are one, so that of two like replicas one can
//     go on alone. Which one does, where both live and do not reach each other, is for the log.
//   - A round is closed by the leader, by a pause or a stop, or by the first word that has messages of a replica which has ended it before: that one is hasty.
//   - What is not counted goes back into the stream of samples.
//
// A replica that says something untrue harms itself, or is in a dispute with one other: then one of both is not counted, and the log has what
// they said, so that their coordinators can be asked to show it. The package is pure: no clock, no network, integers only. It looks at nobody's authority; package consensus does.
//
// Caller: package consensus, which keeps a Round in its State and applies entries to it.
package rounds
