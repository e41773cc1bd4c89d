// Package kernels is the contract between the model and the machine: devices make
// buffers and in-order queues, a queue executes calls, a call is a plain value made
// by a typed constructor.
//
// Nouns:
//
//   - Device: a thing that computes (`cpu`, `cuda:0`, `opencl:1`).
//   - Buffer: memory of one device; View: a range of a buffer's elements.
//   - Queue: executes calls in order; errors are sticky and come out at Sync.
//   - Event: a place in a queue's order, for which other queues and the host can wait.
//   - Call: one operation with its operands, dimensions and scalars.
//   - Op: which operation; Table says each op's shapes, FLOPs, bytes and tolerance.
//
// Shape letters, used in every comment of the project: B batch (sequences), T time
// (positions), C channels, V vocabulary, L layers, H heads, K key-value heads, D head
// dimension, N rows (B*T where a row is a position). M, N, K in a matrix product are
// its own three sizes. Arrays are row-major; `[N,C]` has C contiguous.
//
// The package refuses to know backends: they live in kernels/cpu, kernels/null and so
// on and are chosen by an explicit list in kernels/devices. It does no I/O, starts no
// goroutine and has no global state. pipeline/model calls it; conform checks every
// backend against the table.
package kernels
