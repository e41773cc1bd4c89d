// Package gossip holds what the members of a run tell each other about themselves.
//
// # Nouns
//
//   - Heartbeat: says once a second that its sender lives and what it is doing.
//   - Paces: say who sends one less often, in runs of so many members that each would receive too many.
//   - Tracker: remembers the newest heartbeat of every peer and answers questions about them: who
//     is silent, who gave a generation up, where the newest step went.
//   - LinkMeter: turns the counters of a link session into the rates that heartbeats report.
//   - Profile: says what a member measured of itself and where it can be reached.
//   - Announcer: measures missing links, and publishes this node's profile where the roster has another one, every 30 s.
//
// It decides nothing and starts no goroutines. Its callers are node, which sends, and the rooms
// that read: node/generation, node/leader and node/monitor. It never imports those rooms, package node or package
// checkpoint.
package gossip
