// Package null is a device that computes nothing: it checks every call against the
// table and counts calls, FLOPs and bytes. The cost model of a layer is what its calls
// count here, so costs cannot drift from the code that issues the calls.
//
// Nouns: Device, Count (what was enqueued, by class). pipeline/model calls it. Buffers
// have a length but no memory: reads give zeros. It never imports another backend.
package null
