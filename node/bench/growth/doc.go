// Package growth measures how the cost of a training step grows: with micro-batches, the length of sequences, layers, nodes and replicas. Beside each
// step stands what an ideal machine would take for it, so that a user sees where growth is worse than it must be.
//
// Nouns:
//
//   - Axis: what grows, while all else stays.
//   - Row: the step of one size, its bound, and the ratio of both.
//   - Bound: the operations of products and attention at the rate of a large product, a pipeline's fill and drain, messages at the rate of the
//     line. No run can be faster, so a ratio that grows is a cost that grows.
//   - Control: what nodes spend to agree on the run: processor time, and messages by kind.
//
// Rows of tokens, sequences and layers compute for real, on the processor. Those of nodes and replicas are real processes of this program with emulated
// devices and lines: nothing is computed there, so that what a processor does is what nodes cost besides. They share this machine: with
// more of them than it carries, steps take longer than nodes would need on machines of their own, and the processor time of a node still counts.
//
// cmd/pnode calls the package. The same fleets in virtual time, without the machine's own load, are TestControlTrafficOfANode in package node.
package growth
