// Package door decides for one node which peers come into its run: those that the replicated log knows, and newcomers
// once the log has noted that they come by an invite. So one count holds for all doors, over all restarts, and nobody new
// enters while the run waits for a majority.
//
// # Nouns
//
//   - [Door]: the rule, asked by handshake for each peer whose capability has good signatures.
//   - [Log]: the part of consensus.Node that it needs.
//
// A node that joins for the first time has no log to ask: it believes signatures, until the log has come. A node that comes back
// lets in who belonged to the run when it left, which brings it the log.
//
// It opens no connection and starts no goroutine. It is called by node; it imports admission and consensus.
package door
