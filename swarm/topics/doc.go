// Package topics sends small messages to every member of a run that subscribes to their topic. Delivery is
// likely, not certain. Each message has at most 64 KiB and each author 20 a second; a message that is
// old, or whose author is no member, goes no further.
//
// Goroutines: one loop per subscription and repair, which looks for members that GossipSub has lost, in the swarm's tasks;
// pubsub's own end with them.
//
// It does not know what is in the messages. It is called by swarm; it imports admission and peerstore to know
// members, and pubsub.
package topics
