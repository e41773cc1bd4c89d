// Package feed brings the replicated log to members that do not vote, through those that do, so that the leader's work
// does not grow with the members.
//
// A member without a vote, a follower, opens a stream to a voter, its feeder, and says how far its log goes. The feeder
// then sends what a leader would: committed entries, or a snapshot where it has no entries so old, and a sign of life
// every [KeepAlive], as long as it hears from the leader itself. All of it is raft's own messages, in the leader's name;
// the follower hands them to its raft. Its answers go no further than to the feeder: they count for no commit.
//
// Pure are [Order], which spreads followers over voters, [Cursor], which says what a follower lacks, and [Opening], the
// first bytes of a stream. [Giver] is the feeder's side, [Taker] the follower's.
//
// Whether a feeder may feed is for the follower to say (package consensus). A feeder that keeps entries back while it
// sends signs of life is not found out here.
//
// Goroutines: Giver.Feed and Taker.Run use the caller's, and each stream has those of raft's network transport.
package feed
