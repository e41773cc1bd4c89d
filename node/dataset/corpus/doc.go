// Package corpus makes one stream of bytes out of the documents of files, for models whose tokens are bytes.
//
// # Nouns
//
//   - Corpus: the files found under the given paths, in an order that depends on their names only.
//   - document: a text file of any size, or a row that package source reads. Store streams all of them, joined by newlines, into
//     chunks: one token is one byte. The same documents in the same order give the same stream, whichever files they came in.
//   - Report: what was taken, and what was left out and why.
//
// Package shard does the same for models with a tokenizer. Package ingest calls both when a run begins.
package corpus
