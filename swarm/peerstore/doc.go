// Package peerstore remembers the peers of a run: their addresses, the capabilities that prove them members,
// the verdicts on them, and when to dial each next. Entries without a capability, seeds, are
// bootstrap addresses and discoveries in the local network. The number of entries is bounded. Addresses that no message
// may carry are not kept, whoever said them.
//
// It opens no connection and reads no clock: times are arguments. It is called by mesh, handshake and
// topics, and imports admission for capabilities and records.
package peerstore
