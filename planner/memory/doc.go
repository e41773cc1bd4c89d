// Package memory reckons what a model's layers take of devices in training: parameters,
// gradients, the optimizer's state, what micro-batches in flight keep, and what passes need.
//
// Nouns:
//
//   - Model: all that it depends on.
//   - Books: the sums that do not depend on how a device stores what products read.
//   - Ledger: the sums for one storage, with what each level of recomputation frees.
//   - Parts: the layers whose optimizer state replicas hold in parts.
//
// Sums are prefixes over layers: entry l is about the layers before l. The estimates are never
// less than what the model's stack allocates (TestPlannedMemoryCoversWhatIsAllocated). The
// planner and its layouts read the books; they know neither devices nor plans. It imports
// pipeline/model, whose costs it adds up, and planner's cost, elastic and partition.
package memory
