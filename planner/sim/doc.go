// Package sim predicts how long a step of a plan takes on a cluster, from one commit to the next: every replica's
// pipeline runs through the discrete-event simulator of pipeline/schedule. What follows the passes goes on beside those of
// other stages, message by message: reductions between replicas, reports, commit and updates.
//
// Nouns: Job (a plan as times), Pipeline (one replica), Tail (what follows, with Part, a range of layers that replicas
// exchange), Result (the predicted step).
//
// It works on times, not on nodes: the planner makes a Job of every candidate.
// It imports pipeline/schedule only.
package sim
