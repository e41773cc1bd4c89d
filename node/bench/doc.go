// Package bench measures this machine's kernels, training steps and schedules next to what people
// would use otherwise, on the same cores in the same run, and compares plans with what else is possible.
//
// Nouns:
//
//   - peer: another program, run as a process of its own that answers one request a line:
//     the newest OpenBLAS through Python's ctypes (openblas.py), PyTorch (torchpeer.py with
//     torchstep.py or torchcalls.py), or this program's own side (Worker). No other library is
//     linked or loaded here, and a report without it says how to get it. What a peer says is
//     bounded, and checked before it is shown.
//   - side: one measurement of one program; takeTurns lets sides alternate over the rounds.
//   - KernelReport: matrix products against OpenBLAS and PyTorch's libraries, with the machine's limits.
//   - StepReport: training steps against PyTorch's, eager and compiled, in f32 and bf16, with where the
//     time goes and what the processor's limit is.
//   - GenerateReport: generated text against Hugging Face's transformers (transformersgenerate.py), eager and compiled, in f32 and
//     bf16, with what reading memory alone would make. This program's side is in package decoding.
//   - Comparison: the ratio to a peer; that to the fastest one is what is told of a product or step.
//   - DeviceReport: GPUs against cuBLASLt, PyTorch and themselves, in rows with targets. A row
//     that could not be measured is open and says why.
//   - AverageReport: sums of gradients over lines that are made for it, against PyTorch over Gloo.
//   - ScheduleReport: pipeline schedules on emulated devices and links, which have no peer
//     but their bound and the simulator.
//   - PlannerReport: predicted steps of random clusters beside those of other plans (package
//     comparison), how long planning takes, and predicted steps beside those that workers take (Prediction).
//   - LocalStepsReport: losses of replicas with local steps beside PyTorch's, which trains by what the ledgers of real nodes tell
//     (torchlocal.py).
//   - ContestReport: steps of codecs and schedules by the meter of a public contest (package nanogpt), and
//     held-out losses of a small model that is trained with them (package losses).
//
// Whatever else the machine does falls on all sides alike, since their rounds alternate.
// A figure is the median over the rounds, a ratio the median of the rounds' ratios.
//
// cmd/pnode calls the package. It asserts nothing: how fast a machine is, is for people to judge.
package bench
