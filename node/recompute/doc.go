// Package recompute trains a run again by its log alone, in one process, whatever its nodes went through: a run is a pure function of its seed
// and its log.
//
// Nouns:
//
//   - A History is what the log says of a run: its plans, and the outer steps of those with local steps. The ledgers of its nodes have it.
//   - A Result has states of the run by step, and what differs from what the nodes said: the loss of a step, or the messages of a replica.
//
// Each plan is carried out as it was, by workers that exchange messages in memory. In a plan with local steps each replica makes as many
// inner steps of a round as counted, and who was left out of the last one makes none. All workers are on this machine, so that it needs the memory of the whole plan.
//
// The same kind of device has the same bits, so each worker computes with the instructions that its ledger names. What this processor lacks, or no
// ledger tells, is in Result.Unlike: a difference then is no proof against anyone.
package recompute
