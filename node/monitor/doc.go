// Package monitor shows a node and its run to people and programs.
//
// # Nouns
//
//   - Monitor: what a node reports. The node tells it what it does; status, heartbeats, events
//     and the page are read from it.
//   - step log: the committed steps of the run, each once and in the order of (generation, step).
//     This node's workers append to it, and steps that they do not compute are merged from the
//     logs of other nodes. Everybody reads it by "since (generation, step)".
//   - loss curves: the steps of the whole run, thinned out (api.Losses). They outlive a process in
//     its folder, and a node that comes late asks another one for them.
//   - plan view: one step of the current plan, simulated with the stage times of the newest
//     heartbeats; the picture of the page and the workers' table come from it.
//   - waiting: why nothing moves, in one sentence.
//
// # Goroutines
//
// The node starts and awaits them: FollowSteps reads other nodes' logs, KeepLosses writes the loss
// curves down, LearnLosses asks for them, Forward hands events on.
//
// The package decides nothing about the run. It sees the run through small interfaces (Consensus,
// Peers) and the heartbeats of package gossip; it never imports node, swarm's host or pipeline's
// links.
package monitor
