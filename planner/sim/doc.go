// Package sim predicts how long a step of a plan takes on a cluster: every replica's
// pipeline runs through the discrete-event simulator of pipeline/schedule, then come the
// reduction between replicas, the commit and the update.
//
// Nouns: Job (a plan as times), Pipeline (one replica), Result (the predicted step).
//
// It works on times, not on nodes: the planner makes a Job of every candidate.
// It imports pipeline/schedule only.
package sim
