// Package host is the node's own memory: that in which the processor computes, and what a stage
// keeps there because its device has none left for it.
//
// Nouns:
//
//   - Memory: gives buffers and counts them in a budget. They belong to no device: no call
//     takes them as an operand.
//   - Map, Unmap: pages outside of the Go heap, which a collector would let grow to twice of
//     what is in use.
//   - Read, Write: copy a view to and from the program, in whichever memory it is.
//
// kernels/cpu, pipeline and node call it. It refuses to know devices, and starts no goroutine.
package host
