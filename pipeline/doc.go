// Package pipeline carries a plan out on a device of this node. It holds the layers that the plan
// puts there, runs a list of actions step after step, reduces gradients, agrees with the other
// workers on the step and applies it.
//
// Nouns:
//
//   - Worker builds, runs and saves what one device of a peer has in one generation.
//   - program is its part of the plan as pure values: the actions, tags and groups derived from it.
//     Every node derives the same actions (Programs).
//   - StageRuntime is one placed stage of a replica: layers, state, copy queues. A worker has several
//     where the schedule interleaves virtual stages or runs pipelines both ways. Its float32 shadow
//     evaluates it.
//   - stepRun is one step, made at its begin and dropped at its end; stageRun is a stage within it. A
//     part is a micro-batch, or one segment of its sequences.
//   - launch is the kernels of one action; transfer is one copy between the device and the host.
//   - offloadEngine moves optimizer state between host memory and the device.
//   - Keeper stores and loads layer states; Exchange (collective) carries frames to other workers.
//
// Life of a step on a worker (file in brackets):
//
//  1. The program runs: forwards and backwards of micro-batches, activations and gradients to the
//     neighbouring stages, by message or in place [step.go].
//  2. Gradients are summed over groups of micro-batches, here and between replicas, in the order that
//     the run fixes (plan.Sums), and over the two ends of the tied embedding in the order embedding +
//     head, concurrently with the rest of the program [reduce.go].
//  3. Each worker reports its losses and the square sums of its gradients to the coordinator, which
//     has the last stage of replica 0. The coordinator adds them up in micro-batch and layer order
//     and answers every worker with one commit: the global norm, the loss, and whether to save or to
//     stop [commit.go].
//  4. With the commit the optimizer updates the parameters [optimizer.go]. Where the plan says so it does before (an optimistic step), and the forwards of the
//     next step begin: the state of before is kept, and the step rolled back to it where the commit asks for something else, or does not come [postvalidation.go].
//     Where the plan keeps a stage's optimizer state in host memory, it comes to the device piece by
//     piece and goes back; the update is the same to the bit. The first pieces come while the step
//     computes, the last ones go while the next step does [offload.go].
//     In a plan's first step the moments may come while the step computes: it is reported once they are here [state.go].
//  5. If the commit says so, the state of each stage is handed to the keeper, which reads and stores
//     it while training goes on; the next update waits for the reading [state.go].
//  6. If the commit names another schedule, all workers take it for the next step: another order of
//     the same work, with as many slots as that needs [worker.go].
//
// # Bits
//
// Every sum has an order that the run fixes. The losses are the same to the bit for any number of
// stages and replicas, any shares of the micro-batches and any schedule, also where they change on the
// way; gradients are not scaled outside of a stage that needs it (model.State.Unscale). The same plan on the same backend gives the
// same bits; one that puts layers on a device of another precision does not, and its reasons say so.
//
// Codec f32 changes nothing, ever. Under the others a tensor is rounded by a function of its
// elements, its codec and the name of its crossing (step, micro-batch, layer, direction). For the
// same cuts and codecs losses are therefore the same to the bit however the run is killed, resumed,
// sent again or scheduled. Segments are tensors of their own; other cuts or codecs round elsewhere.
// The relative error of each tensor is measured as it is written. One past the bound of its codec
// goes in the next better one, which the tensor names and both ends follow [messages.go,
// wire.AppendTensor]. StageTimes, the status of the node and a log line every 50 steps report it.
//
// The cost of rounding is measured where a stage of replica 0 is not in float32: each evaluation runs
// its held-out micro-batches twice, as the stages are, and through their float32 shadows over the
// same links with codec f32 [evaluate.go]. The coordinator puts both losses in its commit. A shadow
// runs forwards alone, one micro-batch at a time, in memory that the stage has for its slots and that
// nothing uses while it evaluates (model.Stack.Shadow), so plans need not count with it. A worker
// that cannot have one logs it and sends messages without a tensor: the others go on, and the loss in
// float32 is not known in this generation. Training has the same bits either way.
//
// # Faults
//
// A worker takes nothing from another that the plan does not have it send. It looks at each tensor's length and
// elements before they reach the device, at each report, at the commit and at the state that it loads; and at all
// that it sends or saves itself, so that it never sends what others would refuse [fault.go, agreement.go]. What
// does not hold ends the step with a plan.Fault, which names the peer and what it owed. Non-finite gradients are
// no fault where loss scaling makes them, in F16: their update is skipped. After 8 more skips than updates it is
// the fault of whoever they came from most often, and divergence where that is this worker [overflow.go].
//
// Nobody waits for ever either. When nothing goes on with a worker for 30 s, or 10 times the slowest of its newest
// steps, the peer that it waits for is at fault: no message, no launch and no byte of one came or went. Before the
// first step's end that is 10 minutes from when all peers have loaded their state, or 2 where steps of an
// earlier generation say what to expect [progress.go].
//
// # After a death
//
// A worker whose steps end for want of another is retained: its stages' state stays in memory until the node has saved
// what the next plan needs of it [retain.go]. All that live can be brought to one step, the newest that any of them has
// taken: the coordinator commits a step when every worker has its reduced gradients, and a worker that misses the commit
// takes it from another one's Commits. Where replicas have optimizer state in parts, a dead one's part is lost.
//
// # A lost worker's steps again
//
// Since a step's bits depend on the state before it and on what others send, another device can compute a lost worker's
// newest steps from a copy of its state and the messages that the others have kept (package replay). Config.Replay
// holds the commits of those steps; the worker is the same, and nobody else computes anything [commit.go].
//
// # A lost worker's steps elsewhere
//
// A worker of another replica with the same layers has the same state. Between two of its updates it can be held still
// (Worker.Hold) for another Worker to load from. That one is the lost worker: it has its place in the plan, gets again what it had
// got since that step, and goes on in the same generation. No other worker learns of it [held.go]. Without another replica it may
// begin with a checkpoint of the generation, and the schedule that the plan had come to (Commits.From): it takes the commits of the steps since
// as they came, and what it sends of these is dropped.
// The coordinator's substitute sends the commit of its first state's step to all, since some may lack it (Config.Taken), and repeats those
// after it that somebody has (Config.Committed) [commit.go].
//
// # Concurrency
//
// The program runs before the device does: it enqueues launches, and waits on the host only for messages,
// and at the end of a step. The goroutine watch follows the device, adds up where the time went and
// ends the step with the first error, by the name of its action [launch.go].
//
// Messages come and go concurrently with the kernels [messages.go]. The input of a stage's next
// forward, and the gradient of each micro-batch in flight, are copied to the device as soon as they
// are here and have a place there. A stage's output is copied back, encoded and sent while the next
// launch runs. Transfers have queues of their own [transfer.go], which events order with that of the
// kernels: a launch begins after the copies that it reads and those of what it writes over, and after
// no others. A device with memory of its own, and room there beyond the plan, packs and unpacks
// messages in int8, so that a quarter of the bytes is copied [quantizer.go].
//
// A Worker belongs to one goroutine. A program's own goroutines end with it: one for each message to
// come, one that sends, one that watches, one for each stage's reduction. One that loads moments ends before the
// first step is reported. One that agrees on a step ends before the backwards of the next one. Two of each offloadEngine
// live while steps are run. A save or a gather in progress outlives its step and is waited for.
//
// The package refuses to decide: when a peer is lost, its context is cancelled and the node asks for
// another plan. Package node calls it. It never imports libp2p, QUIC or Badger.
package pipeline
