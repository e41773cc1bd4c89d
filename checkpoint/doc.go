// Package checkpoint is the part of a node that survives: the state of layers in chunks,
// the manifests that name them, and small transactional buckets for everything else that
// must not be lost.
//
// # Nouns
//
//   - Store: one directory, opened by one process at a time, or to read by several.
//   - Chunk: at most 4 MiB of bytes in a file named by its BLAKE3-256.
//   - Manifest: which chunks make up the state of every layer after one step.
//   - Writing: chunks on their way to a manifest, protected from the sweep.
//   - Pin: a named list of chunks that stay although no manifest names them (data, copies
//     kept for other nodes).
//   - Bucket: a named key-value space with atomic, durable batches.
//
// For folders that are no stores: InNewFolder makes one complete or not at all, Lock has one
// process at a time, and Room tells what a full disk lacked.
//
// # The directory
//
//	lock          held while the store is open
//	index/        Badger: manifests, pins, buckets; every value carries a checksum
//	chunks/ab/    chunk files, by the first two digits of their names
//	tmp/          chunks being written; emptied by Open
//	quarantine/   chunk files whose bytes no longer match their names
//
// # What holds
//
// A chunk is written to a temporary file, synced, renamed and its directory synced before
// PutChunk returns; a manifest is written only after the chunks it needs. So whenever the
// process or the machine stops, everything acknowledged is there, and what was not is
// absent or garbage for the next Sweep. Every read checks the hash. Nothing is written
// when the file system would fall below the reserve: Badger maps its files into memory,
// and a full disk would kill the process rather than return an error. When other programs
// fill the disk, Failed tells so, and Close leaves the index to the next Open, which loses
// nothing, rather than let Badger write its last tables without room for them.
//
// # What it refuses
//
// It never overwrites a manifest by one of an older generation or of another run, never
// returns bytes that do not match their hash, and never repairs by guessing: a damaged
// chunk is moved aside, so that it can be fetched from a peer again.
//
// Package node opens the store, writes and restores checkpoints, and serves chunks to
// peers; swarm/consensus keeps its log in a bucket. It never talks to the network,
// starts one goroutine (watch.go; ended by Close) beside Badger's, and is the only importer
// of Badger.
package checkpoint
