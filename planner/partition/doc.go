// Package partition cuts a model's layers into contiguous ranges for devices in a given
// order, and a step's micro-batches into shares for replicas.
//
// Nouns: Range and Ranges (layers of a model), Problem (devices, layers, memory), period (the
// time of the slowest stage or boundary per micro-batch, which Split makes least), share
// (micro-batches of a replica). Apportion gives layers by weights alone, as people do by hand.
//
// Split and Shares are exact. The planner calls them for every order of devices that it considers.
// The package refuses what does not fit and names the device. It works on indices and
// integers only and imports no other package than pipeline/schedule.
package partition
