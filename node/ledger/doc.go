// Package ledger keeps what each node computed of a run, and proves from the files of all nodes that every sample of
// every committed step entered the model exactly once.
//
// # Nouns
//
//   - ledger: the file FileName in a node's folder. A node only appends to it.
//   - Head: written at each start of the process: which run and which node.
//   - Planned: a plan that the node learned from the log, and the leader's reasons.
//   - Work: which micro-batches a worker added to the gradient of which layers. It is written when it changes.
//   - Entry: a committed step of one worker: its Work, and the loss and the gradient norm of the commit, in bits.
//   - Outer: an outer step of the log, which says what counts of the local steps of a round, and which samples were left before it.
//   - Lineage: the node follows another log of the run than before, which a recovery parted from that one.
//   - Told: a committed step in which this node had no part, by the word of a member that had.
//   - Word: what a node answers those who ask for commits that its own workers took.
//   - Report: the result of an Audit over the ledgers of several nodes.
//
// # The file
//
// Records follow each other. Each has a marker, its kind, its length and a CRC-32C. A reader that meets damage goes on
// at the next record and counts the bytes between. A record is handed to the operating system before the next
// step begins, so that the end of a process loses none; it is on the disk a few seconds later (Recorder.Run).
//
// # What an audit proves
//
// The newest generation's steps count, then those of the generation before it up to the step that it started from, and
// so on down to step 1. A commit needs the reports of all workers of its plan: one record of a step
// proves that all of them computed it. Work says which micro-batches each really added; a worker whose
// records are gone with its folder is vouched for by the commit and the plan. The samples of a micro-batch are a pure
// function of its step and number (package dataset), so nothing else needs to be kept.
//
// # Local steps
//
// Where replicas make steps on their own, these count as far as an Outer says, whichever workers wrote them down. Replicas take
// blocks of the samples that are left (plan.Stream), and those of a replica that did not count come back. An audit lays what all
// steps took side by side: each sample is there once, or left for later steps. Every node has outer steps from the log, so that nobody
// asks for them. A node that was away lacks some: of these it can prove nothing, but what they left.
//
// A ledger that was cut has whole records only. Reached says how far its node came by what else is in its folder; what lies between is
// lost, unless the other ledgers prove it.
//
// # Recoveries
//
// Where a run was recovered without a node, generations of the same number are made twice. A node that follows another lineage gives up
// what it wrote since the two parted (plan.Partings). An audit leaves it out only where no ledger holds to the plan: who gives up steps that
// others count is judged by them all the same.
//
// # What others' word proves
//
// A node without a part in a step has members of the step's plan tell it the commit (package hearsay), so that the steps are
// proven when the folders of all who computed them are gone. Told names the member. It proves that this
// member said so, over a connection that only it can make: an audit lays it beside all other records of the step, and names
// both where they differ. Word is never passed on, so that no member can speak in another's name. A told step says nothing of
// who added which micro-batch: it counts by the commit and the plan, and the report says how many steps do.
//
// The package does not judge losses except by comparison, and never repairs a ledger. Packages node, node/generation and hearsay write it; node and
// node/chaos read it. It imports the nouns of planner/plan, never the network or the store.
package ledger
