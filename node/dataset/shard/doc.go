// Package shard keeps token streams in folders: files of tokens with a manifest that says
// what they are, made by `pnode tokenize` and given to `pnode train --data`.
//
// # Folder
//
//	tokens.json        Manifest: version, tokenizer, vocabulary, counts, shards with hashes
//	tokens-00000.bin   header (16 bytes), then tokens, little endian
//	tokens-00001.bin
//	tokenizer/         the tokenizer's own files, if it has any
//
// The stream is the tokens of all shards in order. A document ends with the end-of-text
// token, so windows may be cut anywhere and still show where documents begin; shards are
// cut between documents. A token has 2 bytes, or 4 for vocabularies over 65536, or 1 where
// the tokens are bytes.
//
// # Nouns
//
//   - Manifest: tokens.json, strict: unknown fields and sums that do not add up are refused.
//   - Folder: a folder opened for reading. Its Stream checks every shard's SHA-256.
//   - Maker: makes a folder out of documents (package source). It encodes a batch of them
//     at a time on several goroutines, which it waits for, and keeps the order, so the same
//     input gives the same bytes. It works in NAME.partial, notes after each shard how far it
//     is, goes on from there when it is started again on the same input, and renames the
//     folder when it is complete. Only one works there at a time, and CheckFinished keeps
//     others from taking its notes for text.
//
// Commands and package node call it; it never imports the network, the store or the model.
package shard
