// Package compress writes gradients in few bits, and keeps what a message lacks for the next one: error
// feedback (Seide et al. 2014, "1-Bit Stochastic Gradient Descent"; Karimireddy et al. 2019, "Error Feedback Fixes
// SignSGD", algorithm 2).
//
// Nouns:
//
//   - Codec is a form of a tensor's elements: float32, bfloat16, blocks with a scale in 8 or 4 bits, or the
//     largest elements alone in 2 bits (Sarfi et al. 2025, "SparseLoCo", arXiv 2508.15706).
//   - missed is a tensor of what earlier messages of a replica lack. It is part of the replica's state.
//   - Place names a message, so that it is rounded the same wherever and whenever it is written.
//
// Blocks and largest elements are counted from a tensor's first element on. No byte depends on how layers are cut into
// stages. A message has a size that its codec and its number of elements give: it is checked before anything is
// read, and nothing is allocated for it. Elements that are not finite or too large are refused, and in Int4 all that no sender writes: elements
// have one form there. So do the places of TopK; the values of its bins, and the steps of Int8, which devices write, are taken as they are.
//
// The package is pure: it does no input or output, reads no clock, starts no goroutine and keeps no state. What averages
// the replicas' gradients calls it (package outer says what these are).
package compress
