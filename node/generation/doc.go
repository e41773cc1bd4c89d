// Package generation carries one plan out on this node: links, workers, what these have left at its end, and what is
// computed in others' places.
//
// # Nouns
//
//   - Generation: a plan that is carried out. It has a session of links and a worker for each device here.
//   - crew: the workers that run, those in lost members' places included.
//   - standIn: what a substitute works with. It runs a lost member's workers from the state of a worker here, or from the newest
//     checkpoint.
//   - Remains: what the workers have left in memory at a generation's end, until the next plan takes it over.
//     It saves its part of a salvage, and replays the steps of members that are gone.
//   - Restorer: computes layers again that nobody holds any more, for the newest checkpoint to have all of its layers.
//   - Replicas with local steps each run as a plan of their own, plan.Alone, and make outer steps together as the log says: package outersteps. A
//     generation needs the members of the replicas here alone then.
//   - Parts: what all of these need of the node. Watch: who hears what happens.
//
// A generation ends when its steps are done, when the node has it stopped, or when it cannot go on: loss.go says why. Where the log
// names a substitute for a lost member it goes on.
//
// It decides nothing: the plan, the substitutes and the salvages are the log's, and the node begins one generation after the
// other.
//
// # Goroutines
//
// All are the node's, in the group of Parts:
//
//   - One for each generation, one for each of its workers, and one for each replica with local steps whose coordinator is here. A worker has those of its step and of one save (pipeline/doc.go).
//   - One that has moments fetched while the first step goes on, until the generation ends.
//   - One once all workers here have loaded their state: it has copies of that made.
//   - One that closes the links of a generation that failed.
//   - One that does what the log wants of the remains, and one that restores lost layers.
//
// Those that ask other members, save or replay at the same time are waited for where they begin.
//
// Package node calls it. It never imports node, node/leader, or what people see: node/monitor, node/api.
package generation
