// Package dataset gives a run its token windows: which tokens every row of every step
// holds, read from chunks with bounded memory.
//
// # Nouns
//
//   - token stream: the content of the chunks of a plan.DataSpec in order: bytes of a
//     corpus.Corpus, or 2 or 4 byte tokens that package shard made with a tokenizer. Documents
//     end with the spec's end-of-text token.
//   - split: the end of the stream, HeldOutPermille of it, is held out: no window to train
//     on reaches into it.
//   - sample: T+1 neighbouring tokens of the part to train on. Position t of a row is
//     token t, its target is token t+1, so a sample's last token is the next one's first.
//   - epoch: one pass. Its samples lie end to end from an offset below T that the seed
//     and the epoch choose, so that another epoch cuts the stream elsewhere. Their number
//     is the same in every epoch.
//   - Sampler: says which sample row r of step s is; it looks at no data.
//   - Dataset: a Sampler with the chunks behind it: tokens and targets [B,T].
//
// # Which sample when
//
// The rows of a run are numbered through: row r of step s (from 1) has position
// (s-1)*rows+r, where rows is micro-batches times sequences of each. Position p is sample
// number p mod n of epoch p div n, in the order of the epoch. So every sample comes
// exactly once an epoch, whatever the cut into micro-batches, replicas and stages; the
// position of a run is its step, and a checkpoint needs no other. Nothing is remembered
// between calls: any node makes any row, without having made those before.
//
// The order of an epoch is a shuffle in two levels, so that a corpus larger than memory is
// read about once an epoch and not once a sample:
//
//  1. The chunks in shuffled order; a sample belongs to the chunk that holds its first
//     token.
//  2. poolChunks of them form a pool, whose samples are shuffled among themselves. A corpus
//     of at most one pool is thereby shuffled as a whole.
//
// Both shuffles are keyed bijections of [0, n): a generalized Feistel cipher with cycle
// walking (permutation.go), so they cost no memory.
//
// # Memory
//
// A Dataset keeps cacheChunks chunks of ChunkBytes, the least recently used goes first;
// every goroutine that reads holds at most one more. Order tables take 8 bytes a chunk.
//
// # Refusals
//
// A stream too short for one sample on each side of the split, tokens outside the vocabulary, a vocabulary
// over the model's, more than MaxBytes.
//
// Package node stores a corpus, or imports shards, when it starts a run, and opens the
// Dataset on every node. This package never imports the store, the network or the model: chunks come
// and go through functions given to it. Its parts: files finds files under paths, source
// reads documents out of them, corpus makes a stream of bytes of these, tokenizer turns text into tokens,
// shard writes and reads folders of token shards, and makes them from documents.
package dataset
