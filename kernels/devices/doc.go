// Package devices finds out what a machine can compute with, and opens it: the one explicit
// list of backends.
//
// Nouns:
//
//   - backend: a kind of device with its driver: `cuda`, `opencl`. Drivers are foreign code,
//     which the build tag static leaves out.
//   - Finding: what is known of one device: what it says of itself, how fast it was measured
//     to be, or what its problem is.
//   - Probe: looks at the devices of all drivers in a process of its own (Examine), which a
//     driver may bring down; the next one goes on behind what ended it. A device whose matrix
//     units ended it is looked at, and used, without them.
//   - Report: the findings of a probe, and which drivers are missing.
//   - Set: the devices that a node computes on, opened.
//
// The processor is a device like the others, `cpu`, without a driver that could fail. Devices
// that drivers make of the processor's cores (PoCL) are taken only by their name.
//
// Devices have the order of the list of backends and within it the drivers'; of a card that several
// drivers offer, told by its address on the bus, the first that works is taken.
//
// The node and the command line call the package; it starts processes, and a goroutine that
// waits for each.
package devices
