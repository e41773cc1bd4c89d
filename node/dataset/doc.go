// Package dataset turns text into the token windows a run trains on. One token is one byte.
//
// # Nouns
//
//   - Corpus: the text files found under the given paths, in an order that depends on
//     their names only. Store streams them, joined by newlines, into chunks.
//   - Dataset: the byte stream of a planner.DataSpec, read back from chunks and cut into a
//     part to train on and a held-out end.
//   - Micro-batch: tokens and targets [batch,T], both flat; the target of a token is the
//     next byte of the stream.
//
// Which windows a micro-batch holds is a pure function of (seed, step, micro): windows are
// drawn with replacement at offsets given by a counter-based generator, so any node can
// make any micro-batch without having made the ones before, and a run that is resumed or
// cut otherwise sees the same data. Sequence i of a step is the same whether micro-batches
// hold one sequence or eight.
//
// It refuses files that were named and are not UTF-8 text, paths that lead nowhere, text
// too short for one window on each side of the split, and more than 4 GiB: a Dataset is
// held in memory.
//
// Package node collects a Corpus when it starts a run and opens the Dataset on every node
// that holds a first or last stage. It never imports the store, the network or the model:
// chunks come and go through functions given to it.
package dataset
