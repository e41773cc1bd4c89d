// Package cuda is the backend for NVIDIA's cards, over the driver's own interface (libcuda,
// which comes with the driver: no toolkit is needed). The library is opened at run time,
// without cgo; a machine without it has no such devices, and that is no error of the program.
//
// Nouns:
//
//   - library: the functions of libcuda as addresses.
//   - Info: a card that was found, and what it says of itself.
//   - Device: an opened one, with the kernels of package gpu loaded.
//   - driver and stream: the card and an in-order stream as package gpu uses them.
//   - segment: launches that are put off until the stream is used for something else; graph: one
//     that came again, as the driver runs it at once.
//   - module: the kernels as PTX, which was compiled ahead of time and which the driver
//     compiles for its card; it keeps the result for the next start.
//   - staging: page-locked host memory, through which copies run beside the kernels.
//   - result: an error code of the driver.
//
// Reading the source: library.go, list.go, device.go, driver.go with module.go, stream.go with
// staging.go, segment.go and graph.go, event.go.
//
// The driver knows a context for each thread. Every group of calls runs on a thread that the
// goroutine is locked to meanwhile and whose context was set: any goroutine may call, a wait in
// one queue does not keep another from enqueueing, and the package starts no goroutine.
//
// What is tested without a card: every operation's launches and their parameters against the
// PTX, order of calls, contexts and errors, with a library that stands in for the driver; and
// the whole conformance suite with one that runs the launches on an OpenCL device.
package cuda
