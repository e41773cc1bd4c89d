// Package pipeline carries a plan out on a device of this node: it holds the layers that
// the plan has there, runs its list of actions step after step, reduces gradients, agrees
// with the other workers on the step and applies it.
//
// Nouns:
//
//   - Worker: what runs on one seat (a device of a peer) in one generation.
//   - holding: one (replica, stage) on a worker. A worker has several where the schedule
//     interleaves chunks or runs pipelines both ways. Its twin evaluates it in float32.
//   - part: a micro-batch, or one segment of its sequences, that an action is about.
//   - Programs: the action lists of a plan's workers; every node derives the same.
//   - Exchange: how frames reach the other workers (a link session).
//   - Keeper: where layer states are saved to and loaded from.
//   - Optimizer: AdamW over the layers held here and the learning-rate schedule.
//   - ferry: the way of optimizer state that the host has to the device and back.
//   - StepResult: what a worker knows of a step after its commit.
//
// Life of a step on a worker (file in brackets):
//
//  1. The program runs: forwards and backwards of micro-batches, activations and gradients
//     to the neighbouring stages, by message or in place [programs.go, execute.go].
//  2. Gradients are summed over replicas in replica order, and over the two ends of the
//     tied embedding in the order embedding + head, beside the rest of the program
//     [reduce.go].
//  3. Each worker reports its losses and the square sums of its gradients to the
//     coordinator, which has the last stage of replica 0. The coordinator adds them up in
//     micro-batch and layer order and answers every worker with one commit: the global
//     norm, the loss, and whether to save or to stop [agree.go].
//  4. With the commit, and never without it, the optimizer updates the parameters
//     [optimizer.go]. Where the plan keeps a stage's optimizer state in the memory of the node,
//     it comes to the device piece by piece and goes back; the update is the same, to the bit.
//     The first pieces come while the passes run, the last ones go while those of the next
//     step do [ferry.go].
//  5. If the commit says so, the state of each stage is handed to the keeper, which reads and
//     stores it while training goes on; the next update waits for the reading [state.go].
//  6. If the commit names another course, all workers take it for the next step: another
//     order of the same work, with as many slots as that needs [course.go].
//
// Every sum has a fixed order, so at a fixed number of replicas the losses are the same
// to the bit for any number of stages and any schedule, also where it changes on the way;
// but for the bf16 and int8 codecs, which round what crosses a boundary between workers.
//
// A stage in BF16 or F16 storage rounds what its products read, a neighbour in float32 does not: what
// crosses between them, parameters, gradients, their sums and saved state are float32 in both, and
// gradients are not scaled outside of a stage that needs it (model.State.Unscale). The
// same plan on the same backend gives the same bits; one that puts layers on a device of another
// precision does not, and its reasons say so.
//
// What that rounding costs is measured: where a stage of replica 0, which evaluates, is not in
// float32, each evaluation runs its held-out micro-batches twice, as the stages are, and then through
// twins of the stages that compute in float32 from the same parameters, over the same links, with
// codec f32 on all of them [evaluate.go, twin.go]. The coordinator has both losses in its commit. A
// twin runs forwards alone, one micro-batch at a time, in memory that the stage has for its passes
// and that nothing uses while it evaluates (model.Stack.Shadow), so plans need not count with it; its
// micro-batches have numbers of their own behind all others. A worker that cannot have one says so in
// the log, and sends a message without a tensor in place of each: the others go on, and the loss in
// float32 is not known in this generation. Training has the same bits with twins and without.
//
// What codecs promise: f32 changes nothing, ever. Under bf16 and int8 a tensor is rounded by a
// function of its elements, its codec and the name of its crossing (step, micro-batch, layer,
// direction), so that for the same cuts and codecs losses are the same to the bit however the
// run is killed, resumed, sent again or scheduled, but for schedules with segments, which are
// tensors of their own; other cuts or codecs, after a re-plan, round elsewhere. The relative error of each tensor is measured as it is written; one past the
// bound of its codec goes in the next better one, which the tensor names and both ends follow
// [boundary.go, wire.AppendTensor]. What that came to is in StageTimes, in the status of the
// node and, every 50 steps, for each link in the log [codecuse.go].
//
// The program is ahead of the device: it enqueues passes, and waits on the host only for messages
// to come, and at the end of a step. What follows the device is watch, which adds up where the time
// went and ends the step with the first error, by the name of its pass [pass.go].
//
// Messages come and go beside the passes [arrival.go, departure.go]. What the next forward of a
// stage needs, and the gradient for each micro-batch in flight, is copied to the device as soon as
// it is here and has a place there; what a stage has computed is copied back, written in its codec
// and sent while the next pass runs. Copies have queues of their own [copier.go], which events order
// with that of the passes: a pass begins behind the copies that it reads and those of what it writes
// over, and behind no others. A device with memory of its own, and room there beyond the
// plan, packs and unpacks what crosses in int8, so that a quarter of the bytes is copied [packing.go].
//
// A Worker belongs to one goroutine; beside it run those of a step, which ends with them: one for
// each message to come, one that sends, one that watches the passes, and the reductions; two of
// each ferry, for as long as steps are run; and a save in progress of each holding, which is waited
// for, too. The package refuses to decide:
// when a peer is lost, its context is cancelled and the node asks for another plan. The
// node package calls it. It never imports libp2p, QUIC or Badger.
package pipeline
