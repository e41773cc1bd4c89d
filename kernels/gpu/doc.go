// Package gpu is what all GPU backends share: one source of kernels, how each call of the
// contract is made of them, and devices, buffers and queues over what a driver can do.
//
// Nouns:
//
//   - Source: the kernels of cl/, real OpenCL C 1.2, one file for each family of operations.
//   - Geometry: how many work-items a work-group has on a device.
//   - Launch: one kernel with its grid and arguments.
//   - Plan: the launches of one call, in order, and the memory they need between them.
//   - Driver and Stream: what a backend must be able to do: memory, launches, copies, and marks,
//     of which events are made.
//   - Device: a kernels.Device over a driver.
//
// Arrays are given to kernels as a buffer and a first element, so that a backend needs no
// buffer within a buffer. Sums have an order that depends on the sizes and the geometry only:
// there are no float atomics. Indices in a call (tokens, targets, starts) are checked on the
// device: a bad one touches no memory outside its operand and leaves the operation in the
// queue's fault word, which is read when a queue or an event behind the call is waited for.
//
// The package loads no library and starts no goroutine. Backends import it; it never imports
// one.
package gpu
