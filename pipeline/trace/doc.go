// Package trace records when the workers of a node did what, and reads it back. Files
// are in Chrome's trace event format (JSON array), which chrome://tracing and Perfetto show.
//
// Nouns:
//
//   - Recorder: takes the spans of this node's workers, for a file or a function. A nil Recorder takes
//     none and costs nothing.
//   - Timed: one action of a worker's program, from when it began to when it ended.
//   - TimedCopy: a message between a device and the host, concurrently with a worker's program.
//   - Trace: what files hold, of all their nodes; its Steps are timelines to draw.
//
// A receive's span is the wait for the message to be on the device, a send's ends when it is to
// be copied and sent. A forward or backward begins when its message is there. Reductions run
// beside the program and have rows of their own, and so do the copies of messages.
//
// Times begin with the node's clock at the recorder's start, and move on with its
// monotonic clock. Merge brings nodes to one clock: no message can arrive before it was
// sent, and the quickest message each way tells how far two clocks are apart, as in NTP,
// but for half of what the two ways differ.
//
// Memory is bounded: spans go to the file as they come, at most MaxSpans. Reading is bounded
// too. The package knows files and actions only; pipeline and node use it.
package trace
