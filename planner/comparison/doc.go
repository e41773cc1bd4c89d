// Package comparison compares plans with what else is possible on seeded random clusters: with the plans of fewer nodes
// (Chain), with the least step of all orders, cuts and replicas (Gap), and with the splits that people make by hand
// (Mixed). The same seed gives the same cluster and the same figures on every machine.
//
// It computes predicted steps alone, in integers, and judges none of them. How long planning takes is measured by its
// caller, node/bench, on clusters that Large makes.
//
// It imports pipeline/model and pipeline/schedule, and package planner with its nouns and its partition. Nothing of the planner knows it.
package comparison
