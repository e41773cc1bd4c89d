// Package gossip holds what the members of a run tell each other about themselves.
//
// A Heartbeat says once a second that its sender lives and what it is doing. The Tracker
// remembers the newest heartbeat of every peer and answers questions about them: who is
// silent, who gave a generation up, where the newest step went. LinkMeter turns the counters
// of a link session into the rates that heartbeats report.
//
// It decides nothing and starts no goroutines. Its callers are node, which sends heartbeats,
// and the rooms that read them: node/leader and node/monitor. It never imports those rooms,
// package node or package checkpoint.
package gossip
