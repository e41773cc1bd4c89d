// Package textsamples has the model write a short text every so many steps while it trains, from checkpoints that are whole on this node.
//
// Nouns:
//
//   - Sampler: waits for checkpoints, and publishes what the model of some of them writes.
//
// It reads checkpoints and changes nothing of the run: losses are the same with it and without it. While one text is being written newer
// checkpoints pass, but for the newest.
//
// Goroutines: Sampler.Run is the node's. Caller: package node, which says how a model writes. It never imports node/checkpointer or node/ingest.
package textsamples
