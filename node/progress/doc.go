// Package progress turns a node's events and status into what a user reads.
//
// # Nouns
//
//   - Writer: takes events as they happen; writes JSON lines for machines and, for people,
//     one updating line on a terminal or a line now and then elsewhere.
//   - Status, Checkpoints, Verified: the tables that commands print.
//
// The JSON lines are a fixed surface: one object a committed step,
//
//	{"step":12,"loss":3.214501,"held_out":null,"tokens_per_s":5120,"generation":1,"learning_rate":0.0012,"gradient_norm":0.84,"step_s":0.4,"memory_bytes":211845120}
//
// with the shortest digits that read back to the same float64. What follows "generation" is there where it is known. Where the held-out loss in
// float32 throughout was measured beside it, "held_out_f32" follows "held_out". A loss that is not finite
// is null.
//
// The package decides nothing, starts no goroutine and reads no clock but the one it is
// given. Text that came from a model or from another node is freed of what a terminal
// would obey before it reaches one; files and pipes get generated text unchanged. cmd/pnode and node/local call it; it imports
// node/api, checkpoint and planner for their types only.
package progress
