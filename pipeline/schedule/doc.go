// Package schedule says in which order the workers of a pipeline compute and
// communicate during one step. A schedule is data: per worker a list of actions, which
// prints as text (`2F0` is the forward of micro-batch 0 on stage 2) and parses back.
//
// Nouns:
//
//   - Action: one operation on one micro-batch of one stage of one replica.
//   - Schedule: per worker its actions in program order. A worker holds the stages that
//     it computes; nothing else says which.
//   - Kind: a generator (Kinds lists them) with what it costs and where it comes from;
//     Options are its integers.
//   - Spec: the name of a schedule, `kfkb:k=3`; a plan holds it, and every node builds the
//     same actions from it for each Group of replicas.
//   - Costs: what stages and boundaries of one replica take, in integer nanoseconds.
//   - Timeline: when each action of a schedule runs under given costs.
//
// Generators make schedules from integers, passes turn schedules into schedules,
// Validate accepts or refuses them, Simulate times them. The runner interprets any
// schedule that validates, so order costs time but never correctness.
//
// # What the runner asks of a kind
//
// A kind orders forwards and backwards (or input and weight gradients, and
// recomputations) alone; the runner adds communication, reductions and steps with the
// passes. It
//
//   - has one contiguous Share of the micro-batches for each replica: two directions of one
//     pipeline are two replicas of a Group on the same workers;
//   - holds each (replica, stage) on one worker throughout, and several of them where
//     Chunks or Replicas is more than 1. Where stages s and s+1 of a replica share a worker,
//     the tensors between them are handed over there without a message;
//   - gives each stage's weight gradients in ascending micro-batch order;
//   - may place REDUCE and STEP itself; WithReduceAndStep adds what is missing. REDUCE hands
//     the gradient of one stage in and does not wait for the others; STEP waits for all.
//
// A stage that has a Recompute for a micro-batch keeps nothing of its forward but the
// input. It may come long before the gradient.
//
// # The same bits under every schedule
//
// Losses depend neither on the schedule nor on the number of replicas:
//
//   - The runner accumulates weight gradients in program order into one gradient for each
//     (replica, stage); Validate refuses a program in which they do not ascend. So chunks,
//     groups and a delayed BackwardWeight change no bit.
//   - Groups of micro-batches are summed in an order that the run fixes (plan.Sums); a replica
//     has whole groups. Two replicas on one worker have a gradient each until then. Chimera
//     with f pairs is 2f replicas (down pipelines are even ones, up pipelines odd).
//   - With Segments = n > 1 (Seq1F1B) Micro counts segments: Micro = sequence*n + segment,
//     where segment 0 has a sequence's first T/n tokens. On one stage forwards come in
//     ascending segment order, since a segment attends to the keys and values of those
//     before it, which the stage keeps; backwards of a sequence come in descending order,
//     since a segment's keys and values collect gradients of those after it. Sequences
//     come in ascending order. The runner adds the weight gradient of a whole sequence
//     with the backward of segment 0, its last one there: it sums the same rows in the same
//     order as without segments, and so gives the same bits; adding each segment by itself
//     would differ in the last ones.
//
// The package is pure: no input or output, no clock, no goroutine; the same arguments
// give the same result on every architecture. It imports nothing of this module. The
// planner, the simulator and the runner call it.
package schedule
