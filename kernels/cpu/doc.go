// Package cpu is the backend that runs everywhere: kernels in Go, and in assembly where
// the processor has AVX2, AVX-512 or NEON.
//
// Nouns:
//
//   - Device: memory and a pool of workers; queues execute a call at once in Do.
//   - variant: the inner loops of one instruction set (generic; avx2, avx512 and avx512bf16 on
//     amd64, neon and neonbf16 on arm64). The best candidate that passes its self-test at the start is used
//     (choose.go): verify.go's check of each loop, then that of whole operations in conform.
//   - pool, worker: one goroutine per core, alive as long as the device.
//   - int8Matrix: int8 weights, which products of few rows read as they are and others widen (int8.go).
//   - product, operand: a matrix product and its packed sides; tile: one call of the matrix
//     micro-kernel.
//   - ahead: memory that micro-kernels fetch beside their multiply-adds for the loops after them.
//
// Reading the source: device.go, pool.go, matmul.go with pack.go, pairs.go, direct.go, int8.go and rowtask.go,
// attention.go with ahead.go and the files named after it, then one file per operation. asm/ is the
// generator of the assembly for amd64: the loops of the matrix product in loops_amd64.s, all
// others in math_amd64.s. asm/neon/ is that for arm64, in neon_arm64.s. .ci/run tries the
// latter on an emulated processor, those that multiply BF16 too, so its speed is not known; .ci/avx512 tries the kernels for
// AVX-512 on one, which does not multiply BF16. pairs.go is tried on every processor around additions of pairs
// in Go, which have the bits of those that do.
//
// Bits: every sum has an order that depends on the shape of the call only. However work is
// cut into tasks, a task is computed by one worker and tasks never add to the same element
// at the same time; so results do not depend on the number of threads. A row of a matrix product
// does not depend on the other rows either: edges run through the same micro-kernel, and the
// kernels of direct.go for few rows add in its order.
// Variants differ from each other in the last bits; avx512bf16 from avx512, and neonbf16 from neon, only where products and
// attention read BF16. There attention rounds probabilities and gradients of scores to BF16 before it multiplies them, and a
// sum gets its products in pairs: avx512bf16 adds each of a pair, the odd one of K first, and rounds to nearest; neonbf16 adds
// the sum of both, and rounds to odd (variant.addPair). The self-test holds each processor to these bits, so that all which
// compute as one variant compute the same, and one that adds otherwise does without it.
//
// Memory: buffers and scratch lie outside the Go heap, aligned to 64 bytes. Each call of
// an assembly function takes far less than a millisecond, because the garbage collector
// cannot stop a goroutine inside it.
//
// Goroutines: the workers, started by New and ended by Device.Close, which waits for them.
// One without work looks for it some tens of microseconds before it sleeps.
//
// The package computes on bf16 and f16 in matrix products, attention, embeddings, casts and copies of
// parameters (else kernels.ErrUnsupported), by float32 but for products of bf16, those in attention too,
// where a processor has AVX512_BF16, with which they are twice as fast, or FEAT_BF16 of arm64, an instruction of
// which adds four times as many products as one of float32 (pairs.go). All others are no faster than float32,
// and f16, which is converted in plain Go, is slower. The node creates the device; everybody else sees kernels.Device
// only. It never imports another backend.
package cpu
