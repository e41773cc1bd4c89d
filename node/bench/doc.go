// Package bench measures this machine's kernels and training steps next to what people
// would use otherwise, on the same cores in the same run.
//
// Nouns:
//
//   - peer: another program, run as a process of its own that answers one request a line:
//     OpenBLAS through Python's ctypes (openblas.py), PyTorch (torchpeer.py with torchstep.py
//     or torchcalls.py). It is never linked or loaded here, and a report without it says how
//     to get it.
//   - KernelReport: matrix products against OpenBLAS, with the machine's limits.
//   - StepReport: training steps against PyTorch, with where the time goes.
//   - DeviceReport: GPUs against cuBLASLt, PyTorch and themselves, in rows with targets. A row
//     that could not be measured is open and says why. Every side is a process of its own; this
//     program's are DeviceWorkers, which do one task on one device.
//   - ScheduleReport: pipeline schedules on emulated devices and links, which have no peer
//     but their bound and the simulator.
//
// Rounds of both sides take turns, so that whatever else the machine does falls on both.
// A figure is the median over the rounds, a ratio the median of the rounds' ratios.
//
// cmd/pnode calls it. It asserts nothing: how fast a machine is, is for people to judge.
package bench
