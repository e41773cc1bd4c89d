// Package checkpoint is the part of a node that survives: the state of layers in chunks,
// the manifests that name them, and small transactional buckets for everything else that
// must not be lost.
//
// # Nouns
//
//   - Store: one directory, opened by one process at a time, or to read by several.
//   - Chunk: at most 4 MiB of bytes in a file named by its BLAKE3-256.
//   - Cut: how a layer's state lies in chunks.
//   - Manifest: which chunks make up the state of every layer after one step.
//   - Writing: chunks on their way to a manifest, protected from the sweep. Those that are put behind can be read at once and are
//     durable after Settle, or with their manifest.
//   - Pin: a named list of chunks that stay although no manifest names them (data, copies
//     kept for other nodes).
//   - Bucket: a named key-value space with atomic, durable batches.
//
// For folders that are no stores: InNewFolder makes one complete or not at all, Lock has one
// process at a time, and Room says what a full disk lacked.
//
// # The directory
//
//	lock          held while the store is open
//	format        the store's format and the version of pnode that wrote it
//	index/        pins, buckets, and which manifests must be there: the journal, kept twice, and Badger, made from it
//	manifests/    one file for each, which begins with its checksum
//	chunks/ab/    chunk files, by the first two digits of their names
//	tmp/          files being written; emptied by Open
//	quarantine/   chunk files whose bytes no longer match their names
//
// # What holds
//
// A chunk is written to a temporary file, synced, renamed and its directory synced before
// PutChunk returns. A manifest's file is written only after the chunks it needs, and before the index
// says that it must be there. So whenever the process or the machine stops, everything acknowledged is there, and what was not is
// absent or garbage for the next Sweep. Every read checks the hash.
//
// The index is in three places. A batch goes to the two files of the journal (package journal), of which either is enough, and
// then to Badger, which answers reads. Badger's files are sealed with their hashes when it is closed in order. Open gives Badger
// only files that match: it reads them in goroutines of its own, where a panic over damaged bytes ends the process. Else, and
// when a read fails, it is made again from the journal. Without either file of the journal the store is not opened to
// write: a node that forgot its vote could vote twice.
//
// No chunk is written when the file system would fall below the reserve. Below half of it Badger is left alone, since it maps its
// files into memory and a full disk would kill the process; the index works from the journal, which has
// room of its own, until it can be made again. When the folder is removed, no write is acknowledged any more, and Failed says so.
//
// # Versions
//
// The store and each manifest have a format number; A program reads every
// format from 2 on up to its own; 1 was of no release. A change that an older program would misread raises the number; one that it may
// ignore does not. What has a higher number is refused with ErrVersion before anything is written, and
// the error names the version of pnode to fetch. Chunks have no format of their own: they are bytes
// with a hash, and the manifest's format says how a layer's state lies in them.
//
// # What it refuses
//
// It never overwrites a manifest by one of an older generation or of another run, never reads a newer
// format, never
// returns bytes that do not match their hash, and never repairs by guessing: a damaged
// chunk is moved aside, so that it can be fetched from a peer again.
//
// A store that is opened to read alone writes nothing at all, and reads manifests and chunks without the index where that is
// damaged.
//
// Package node opens the store, writes and restores checkpoints, and serves chunks to
// peers; swarm/consensus keeps its log in a bucket. It never talks to the network, and
// starts one goroutine (watch.go; ended by Close) besides Badger's, and is the only importer
// of Badger.
package checkpoint
