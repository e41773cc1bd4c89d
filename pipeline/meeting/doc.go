// Package meeting has the part of one worker's stage in the outer steps of replicas with local steps (Douillard et al. 2023, "DiLoCo",
// arXiv 2311.08105). It writes what the stage has learned in a round, takes what the same layers of other replicas have learned, and
// makes the outer step.
//
// Nouns:
//
//   - Meeting owns the layers' State in the node's memory, and the messages of a round.
//   - State is what a layer has between outer steps: the reference and the outer momentum, which all replicas have in common, and what this
//     replica's messages lack so far.
//   - A message has a layer's outer gradient: its trained tensors one after the other, each in the codec. The head's copy of a tied
//     embedding is not in it: the outer gradient of the embedding is for both.
//
// No sum travels, so that none is rounded: each receiver adds all messages in the order of the replicas. All numbers are made by package compress and by
// kernels of the processor, so that replicas have the same reference to the bit, however each of them is cut and whatever devices
// it trains on. Who counts, and with what weight, is for the log to say.
//
// Messages come from members that are not trusted: their sizes follow from codec and layer, and their elements are bounded
// before any replica says that it has them.
//
// It sends nothing, waits for nobody and starts no goroutine. Caller: package gather, which carries the messages.
package meeting
