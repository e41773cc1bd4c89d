// Package node is one running pnode process. READ THIS FIRST: it is the door to the
// source.
//
// # Glossary
//
//   - run: one training job; its RunSpec (model, data, hyper-parameters) decides every
//     loss. Node: one process with one libp2p identity. Device: what computes on a node.
//   - roster: the members of the run, replicated by the consensus log. The elected leader
//     of the log is the planner; its election counts terms.
//   - plan: replicas x stages -> devices, layer ranges, schedule. Each committed plan is a
//     generation. A stage is a contiguous range of layers, a replica a full set of stages,
//     a micro-batch the unit that flows through them, a step one optimizer update.
//   - checkpoint: the state after a step of all layers, in content-addressed chunks that
//     at least two nodes hold; it counts when the consensus log names every layer.
//
// # Life of a node
//
// machine.go holds the table of phases: joining -> profiling -> waiting -> loading ->
// training, draining on the way out, stopped at the end. start.go begins a run (Train),
// enter.go enters one (Join), comeback.go goes on with one, and open.go brings the node's
// parts up for each of them. Package ingest brings what a new run starts from into
// chunks, arrive.go takes the node into the roster, loop.go follows the replicated state from then on, exit.go is the pure rule of the way out and
// leave.go carries it out. What people and
// programs see of the run is in package monitor. Package
// hardware opens and measures what this machine computes on; lost.go goes on without a device
// that stopped working.
//
// # Life of a step
//
//  1. dataset gives the micro-batch's tokens to the first stage and its targets to the
//     last: a pure function of (seed, step, micro).
//  2. pipeline runs the stage's action list: forwards send activations on, backwards send
//     gradients back, over a link session of the generation.
//  3. Gradients are summed over replicas; every worker reports square sums and losses to
//     the coordinator, whose commit makes the step count; the optimizer updates.
//     Every committed step goes into the step log (package monitor); nodes without a part in
//     the plan read it in the logs of those that have one.
//  4. Every checkpoint_every steps the commit says save: each stage's state goes into
//     chunks (keeper.go), its holder fetches a copy, the stage is reported to the log, and
//     when the log has all layers the checkpoint is committed.
//
// # When a node dies
//
// Members gossip a heartbeat each second (beat.go, tracker.go). A member that is silent for
// 5 s is gone if it does not answer and its host says that its process has ended; if the
// host is silent too, a link may be down, which has 15 s to come back: links resume then and
// nothing is lost. Links notice a dead neighbour by the same signs: the generation is given
// up, the node waits. The planner (leader.go, with
// the pure rule in decide.go) marks the dead gone and commits a plan for those that are
// left, starting from the newest committed checkpoint; nodes fetch what state they lack
// and go on. Where nobody has all of that checkpoint any more, the run goes back to an older
// one. A change that can wait first has the newest step saved, and starts from there.
// A voter majority must be alive; without it everything stops and waits, and says so.
//
// # When a link or a stage slows down
//
// Heartbeats also tell where each stage's step went and what the messages to neighbours
// showed of their links (reselect.go). The planner compares the schedule that runs with the
// best one for these times (planner.Reselect). When a step is off its prediction and another
// schedule is better, by margins and for several windows of steps, the run changes over as
// above: from its newest step, with the same layers in the same places, or with one chunk on each
// device where the links have become too slow for the messages of several.
//
// # Goroutines
//
// All belong to one errgroup of the Node and are waited for by Close:
//
//   - loop: the run loop (loop.go); owns phase and generation.
//   - heartbeats: one gossip message a second (beat.go), and a word to people when nothing
//     moves (monitor); profiles: one every 30 s about speed, addresses and links (links.go),
//     which the planner brings into the roster (profiles.go).
//   - FollowSteps: reads the steps that no worker here reports (monitor).
//   - KeepLosses: writes the loss curve down; LearnLosses: asks another node for the one of
//     before this node came, until one has told (monitor).
//   - Forward: hands events to whoever started the node; single background tasks of
//     the run loop: rejoin, wish, finish (leave.go), check of devices (lost.go).
//   - lead: the planner's duties while this node leads (leader.go).
//   - links: the accept loop of the data plane (pipeline/link).
//   - two while a node enters the roster: one hears whether the run is finished, one whether
//     nobody is there to come back to (arrive.go).
//   - one per generation, with one per worker, one that waits for these and one that watches
//     the links (generation.go); a worker has those of its step, which copy, send, receive and
//     sum up (pipeline/doc.go), and may have one save under way (pipeline/state.go).
//   - mirror: brings a large text here while the node trains; ends when it has all (ingest).
//   - keeper: retention of checkpoints after each commit (keeper.go).
//   - api: the local HTTP server (node/api).
//   - watchDisk: ends the node when the store says that its disk is full (node.go).
//
// swarm, consensus and link document their own.
package node
