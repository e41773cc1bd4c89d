// Package cost is the program's only cost model: it turns layers, devices and links into times,
// bytes and memory, all of them integers. Go may fuse x*y+z, so that two architectures could round
// floating-point costs differently and plan differently.
//
// Nouns:
//
//   - Speed, Link: what was measured of a device and of one direction between two nodes.
//   - MemoryModel, DeviceMemory: what layers take in training, of any device, and of those that
//     store one precision. Parts: layers whose optimizer state replicas hold in parts.
//   - Recomputation: what a level of recomputation frees and takes.
//   - Stage, Rows: a stage of a replica on a device, with what was chosen for it.
//   - Model: all of that for given devices, precisions, sharding and offload.
//
// Sums over layers are prefixes: entry l is about the layers before l. Estimates of memory are never
// less than what the model's stack allocates (TestPlannedMemoryCoversWhatIsAllocated). A speed of 0
// takes the longest time there is. Times that were measured of a stage override modelled ones.
//
// The planner makes a Model of every problem; the node reaches it through planner.Timing. The
// package knows no peers and decides nothing. It imports kernels' costs through pipeline/model,
// pipeline/schedule for times, and planner/plan; nothing that measures.
package cost
