// Package node is one running pnode process. READ THIS FIRST: it is the door to the
// source. docs/glossary.md has the words.
//
// # Rooms
//
// Node holds the parts of a process, loop the state that changes while it runs. What they do
// stands in rooms, each with a struct of values and small interfaces as its door. No room
// imports this package:
//
//   - generation: one plan on this node: links, workers, what they leave in memory, and what is computed in others' places.
//   - leader: duties of the elected member: watches the others, decides, plans, proposes.
//   - checkpointer: saves stages, holds copies for others, fetches chunks, drops old checkpoints.
//   - gossip: heartbeats and profiles, which members send each other, and what they show.
//   - monitor: what people and programs see: status, events, the step log, the plan view.
//   - ingest: from files to the run: text, first weights, tokenizer.
//   - hardware: what this machine computes on, its profile, lost devices.
//   - ledger, hearsay: what was computed, here and by the word of others.
//   - textsamples: what the model writes while it trains.
//   - listening: for how long voters were not heard, over starts.
//   - notice: signals, and clouds that take this machine away.
//   - api, config, dataset, weights, infer, local, progress: see docs/architecture.md.
//
// # Life of a node
//
// phase.go has the table of phases: joining -> profiling -> waiting -> loading -> training,
// draining on the way out, stopped at the end. train.go founds a run, join.go enters one,
// resume.go goes on with one. Each of them has open.go bring the parts up. bootstrap.go takes the
// node into the roster, then loop.go follows the replicated state: generations.go has plans carried
// out, exit.go is the pure rule of the way out, leave.go acts on it, handover.go follows what goes to
// others meanwhile, farewell.go gives the vote away, completion.go ends the run, and delivery.go keeps its nodes until an owner has the
// model. invites.go makes and revokes invites, removal.go
// acts on removals. membership.go holds what a node must keep to come back, stored.go reads the folders of
// nodes that do not run. requests.go and consensus.go put requests and raft on swarm's streams.
//
// # Life of a step
//
//  1. dataset gives the micro-batch's tokens to the first stage and its targets to the
//     last: a pure function of (seed, step, micro).
//  2. pipeline runs the stage's action list: forwards send activations on, backwards send
//     gradients back, over a link session of the generation.
//  3. Gradients are summed over replicas, in an order that the run fixes; every worker reports square sums and losses to
//     the coordinator, whose commit makes the step count; the optimizer updates.
//     Every committed step goes into the step log (monitor); nodes without a part in
//     the plan read it in the logs of those that have one.
//  4. Every checkpoint_every steps the commit says save. Each stage's state goes into chunks
//     and its holder fetches a copy (checkpointer): another one, where the log says that copies do not get to it. The stage is reported to the log; when
//     the log has all layers, the checkpoint is committed.
//
// # When a node dies
//
// A member whose process ends is gone at once, where it can be reached over TCP: its operating system closes an
// idle connection and refuses another one (swarm/lifeline). Elsewhere silence tells.
// Members send a heartbeat each second (gossip). A member that is silent for 5 s is gone if it
// does not answer and its host says that its process has ended. If the host is silent too, a link
// may be down. Silence that is shorter than 6 s costs its time alone: links resume. A link gives a peer up
// that is silent for longer than its traffic has taught, 6 to 15 s (pipeline/link/silence). The generation ends then, for
// all members as soon as they hear of it, and its workers' state stays in memory (generation/remains.go) and is saved. Where nothing is lost by it, the
// next plan does without the silent member (leader/away.go), which is still in the run, and is gone only after the 8 to 15 s that
// its heartbeats teach. Where both ends of a link live that is given up, one of them is left out for a while (leader/parted.go). Where a process has ended, the generation goes on if another member can do its
// part: the log names it (consensus.Substitute), and it runs the lost workers from its own state, where another replica has the same
// layers, or from the newest checkpoint, whose later steps it computes again first (generation/substitute.go). In a lost coordinator's place
// it first asks the others for the newest commit that they have of it (generation/commits.go).
// Else all that live can be brought to one step, the newest that one of them has
// taken. Where they have all layers together the leader has the log name who saves which
// (consensus.Salvage), and nothing is done twice. It marks the dead gone and commits a plan for those
// that are left, from the newest committed checkpoint: what was salvaged, else an older one; workers take over the
// state that their device has in memory (pipeline.Retained.Keep), nodes fetch what they lack and go on. Where nobody has all of that checkpoint any more, the run goes
// back to one before. A change that can wait first has the
// newest step saved, and starts from there: the plan is searched for while the steps go on, each
// stage is saved where it is, and whoever gets layers fetches them there. A search for plans may take
// seconds and delays none of this. A voter majority must be alive; without it everything stops and waits, and says so.
//
// # When a link or a stage slows down
//
// Heartbeats report where each stage's step went and what the messages to neighbours showed of
// their links. The leader compares the schedule that runs with the best one for these times
// (leader/schedule.go). When a step is off its prediction and another schedule is better, by
// margins and for several windows of steps, the run changes over: from its newest step, with the
// same layers in the same places, or with one stage on each device where the links have become
// too slow for the messages of several.
//
// # Goroutines
//
// All belong to one errgroup of the Node and are waited for by Close:
//
//   - The caller's: bootstrap, then the loop (loop.go). It owns the phase and the generation.
//   - sendHeartbeats: one heartbeat a second, and a word to people when nothing moves (node.go).
//   - leader.Run, with its searches for plans.
//   - announcer.Run: measures links, sends the profile where the roster has another one, every 30 s (gossip).
//   - monitor: FollowSteps reads the steps that no worker here reports. KeepLosses writes the
//     loss curve down; LearnLosses asks another node for the one of before. Forward hands events
//     to whoever started the node.
//   - ledger.Run: brings the record of what was computed here to the disk.
//   - hearsay.Run: asks for the commits of steps that are not computed here.
//   - links.Run: the accept loop of the data plane (pipeline/link).
//   - Three while a node enters the roster: one hears whether the run is finished, one whether
//     nobody is there to come back to, one whether this node was removed (bootstrap.go).
//   - Those of the generation and of what the one before has left (generation/doc.go).
//   - whole.Run: has all layers of the newest checkpoint here, on owners' nodes (checkpointer).
//   - sampler.Run: has the model write from checkpoints that are whole here, where somebody wants to read it (textsamples).
//   - Mirror: brings a large text here while the node trains (ingest).
//   - One for each checkpoint that is committed here, after the one before (loop.go).
//   - Single tasks of the loop: rejoin, wish, finish, check of devices, and giving the vote away (farewell.go).
//   - api.Run: the local HTTP server; metrics.Run the address for scrapers, and Forward counts events for it.
//   - otlp.Run: sends traces of some steps, where somebody wants them.
//   - notice.Watch, with one for each thing that it asks a cloud for; none where there is no cloud (bootstrap.go).
//   - followRemovals: cuts off the peers that owners remove from the run (removal.go).
//   - listening.Run: keeps for how long voters were not heard.
//   - lonely.watch: ends the node when it waits for others that do not run (resume.go).
//   - watchDisk: ends the node when the store or the consensus cannot write (node.go).
//
// swarm, consensus and link document their own.
package node
