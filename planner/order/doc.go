// Package order proposes in which order devices may follow each other in pipelines: sets of devices
// worth a look, and orders of a set.
//
// Noun: Devices, what is known of each: speed, memory, how near the others are, and where it was.
//
// The planner cuts the layers for every order that it is given here and times the result; the
// first stages of an order are replica 0. The package works on indices and integers only and
// imports no other package than pipeline/schedule, for the device of time.
package order
