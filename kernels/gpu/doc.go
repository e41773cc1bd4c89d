// Package gpu is what all GPU backends share: one source of kernels, how each call of the
// contract is made of them, and devices, buffers and queues over what a driver can do.
//
// Nouns:
//
//   - Source: the kernels of cl/, real OpenCL C 1.2, one file for each family of operations.
//   - Geometry: how many work-items a work-group has on a device, and what matrix units it has.
//   - Unit: a kind of matrix units that are not NVIDIA's.
//   - Launch: one kernel with its grid and arguments.
//   - Plan: the launches of one call, in order, and the memory they need between them.
//   - Driver and Stream: what a backend must be able to do: memory, launches, copies, and marks,
//     of which events are made.
//   - Device: a kernels.Device over a driver.
//   - Try and Lacks: a device's test when it is opened, and what it does without because it failed: the
//     fast way to multiply one of the halves, or f16.
//
// Arrays are given to kernels as a buffer and a first element, so that a backend needs no
// buffer within a buffer. Sums have an order that depends on the sizes and the geometry only:
// there are no float atomics. Indices in a call (tokens, targets, starts) are checked on the
// device: a bad one touches no memory outside its operand and leaves the operation in the
// queue's fault word, which is read when a queue or an event behind the call is waited for.
//
// Products of matrices of halves, and on NVIDIA's cards attention, are made by matrix units where a
// device has them that multiply the type: of NVIDIA's the first multiply f16 and not bf16, later ones
// both. cl/mma.cl says what they do. For AMD's (WMMA of RDNA3 and 4, MFMA of CDNA2 to 4; those of CDNA2
// take small numbers of f16 for 0, at which a trial leaves f16 to vector units) and Intel's
// (DPAS) cl/matmulunit.cl is one product over a small interface, which cl/unitamd.cl and
// cl/unitintel.cl give: the rows and columns that an instruction computes, which numbers of each
// matrix a work-item has, and how it loads them. Where there are no such units the same is done by
// ordinary means from each kind's layout (cl/unitemulated.cl), for tests. Command units compiles the
// kernels for these cards; none of AMD's or Intel's has run them.
//
// Attention in f16 is finite for all queries, keys, values and gradients that f16 holds. Probabilities
// that the backward pass computes anew are right to score * 2^-23 (cl/attentionrows.cl), but where one
// key has a query's whole probability, which is exactly 1. On matrix units gradients of scores are rounded
// to the half that they are multiplied in: what is beyond 65504 in f16 is clipped there, as results
// are; on vector units they are float32.
//
// The package loads no library and starts no goroutine. Backends import it; it never imports
// one.
package gpu
