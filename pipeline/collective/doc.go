// Package collective adds gradients up between the workers of a step.
//
// Nouns:
//
//   - Exchange: how frames reach the other workers; a link session is one.
//   - Group: the holders of one layer, one for each replica; AllReduce gives all of them the
//     sum of their gradients, ReduceScatter each the sum of its part, and AllGather all of
//     them the parts.
//   - Tied: the two ends of a replica's tied embedding; SumTied gives both the sum.
//
// Every element is added up in the order of plan.Sums, by exactly one owner, so that the result
// has the same bits for any cut of the model, any number of replicas and on every member. A
// member sends the sums of the subtrees that it has all groups of.
//
// The package refuses to decide who is in a group, to retry and to time out: an error of
// the exchange ends the reduction, and the context is the only limit. It starts goroutines
// within a call only and waits for them. pipeline calls it; it never imports the network.
package collective
