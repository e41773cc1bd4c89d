// Package gather has a worker's messages of a round: what its replica and others with local steps have learned, each for all others.
//
// Nouns:
//
//   - Gatherer has the meetings of a worker's stages, and carries their messages. It begins to take in those of others with
//     the round, since others may be done earlier.
//   - A round's messages of a replica are here once those of all layers are, and its report: each worker tells its replica's coordinator
//     the hashes of what it has, with the senders' seals. So what a replica says to have does not depend on its cut, and can be shown.
//   - Rounds is the log, which says who counts: see plan.Gathered and plan.Merged.
//
// Another replica that is lost, or that no connection leads to, is no error here: its messages are lacking, and the log says whether the others
// wait for it. A message that no honest replica sends is lacking, too, and its sender's fault, of which the log is told. Members of one's own replica are needed,
// as within a step.
//
// Every goroutine of a round ends with it. Caller: package pipeline.
package gather
