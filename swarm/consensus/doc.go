// Package consensus replicates the state of a run to every node: the run's
// specification, the roster, the plans with their generations and the committed
// checkpoints. It decides who plans (the elected leader) and what counts (what the log
// holds).
//
// # Two halves
//
// The pure half has no I/O, clock or goroutine. [State] is the replicated value, an
// [Entry] is one change to it, [Apply] is the only way from one to the next: total,
// deterministic, and answering a refused entry with the reason. [Membership] decides the
// next change of the raft configuration from the roster and who was heard of.
//
// The other half is a raft node: [Node] keeps log, votes and snapshots in a [KV], talks
// over streams of a [Transport], carries proposals from any node to the leader, and on
// the leader keeps the voters right.
//
// # Rules
//
//   - A plan is fenced by generation, term, roster epoch and starting step: one that was
//     made from an older state is refused with [ErrStale].
//   - Every entry is signed by the node that proposes it, for this run and incarnation, and numbered: changed,
//     forged and repeated ones are refused. [Authorize] says for each kind who may propose it, and every node
//     asks it for every entry. A refusal names the author. What a member may propose in a second is bounded.
//   - Every entry may be applied twice with the same effect as once, because a proposal
//     whose answer was lost is sent again.
//   - Replicas with local steps come together by the log: each says which messages it has ([Gathered]), and Apply makes the outer step of all once
//     nobody is waited for (package rounds). The leader ends rounds early and leaves out who is gone. Their checkpoints are those that outer steps ask for:
//     what all have in common, and what at least one replica has for itself ([OwnState]). The next plan says which own state each replica begins with. No run has
//     such steps so far.
//   - Voters are 1 below three nodes, 3 from three, 5 from five, 7 from a hundred; two voters are only
//     passed through. All other nodes receive the log from voters (package feed), so that each knows
//     the whole state and the leader's work does not grow with them. A run has at most [MaxMembers] nodes.
//   - Without a quorum nothing is elected and nothing is committed.
//   - Voters stand for election when raft's heartbeats stop, or at once where [Node.Ended] says that the leader's
//     process has ended.
//
// # What it refuses
//
// It does not admit peers (the transport must only deliver admitted ones), it makes no plans, moves no chunks and
// never looks into a profile or a plan further than its bounds, but for what counts of members' claims (package claims). Raft's own messages are decoded by hashicorp/raft,
// and taken from voters, in their own name, and never of a term far ahead; a voter that lies is not found out.
//
// # Who votes
//
// A node that joins, or was away, does not know the voters of now. Before each change of them the leader has a [Voucher]
// signed: by an owner of the run, or by a majority of the voters before. Vouchers are in the log, and each stream of
// raft, and each feed, begins with them. A node takes raft's messages, and a feed, from a peer that its own log makes a voter, or that vouchers newer
// than its log do, which lead on from voters that it knows or are by an owner. A feed may name no leader but such a peer. A former voter can still mislead a node
// that has not heard of its demotion; former voters who were a majority once can, together.
//
// # Goroutines
//
// Each is started by [Start] and waited for by [Node.Close]: the leader's loop and what asks
// members for it, what has voters feed this node, one per proposal that raft has not answered yet, the shutdown watcher. Raft and
// its stream transports, of which each incoming stream has one, run their own, which end with raft's shutdown. The [Transport] serves
// requests on its own, at most 32 at a time, and Close waits for these too; what feeds other members runs there as well, and ends with raft's streams. A store that fails
// parks those which need it until the node is isolated.
//
// Callers: node. It imports planner for the vocabulary, bearer for the signatures of invites, and hashicorp/raft; never
// libp2p, a database, a schedule or a kernel.
package consensus
