// Package journal keeps each batch of changes to a small set of keys and values in two files, so that damage to either file loses
// nothing. It is what an index is made again from: keys and places are in memory, values in the files.
//
// # Files
//
// "journal" and "journal.copy" have the same bytes: a header with the number of the rewriting that made them, then records.
// A record is one batch, with its number, its length and a CRC-32C of all of it. A batch goes to the first file and is synced,
// then to the second: whenever the process or the machine stops, at least one file is whole, and at most the last batch is in
// the first alone. Open reads both, record by record, and takes each from whichever file has it whole.
//
// When most of the bytes are about values that no longer count, both files are written anew beside the old ones and take their
// names, the first before the second, and before anything is added.
//
// # What holds
//
//   - A batch is there whole, or not at all. What Write has acknowledged is there.
//   - Any damage to one of the files, its loss included, is healed by the next Open, which says so.
//   - Damage to both files at the same place is told, never taken for the end: a voter must not forget its vote. Open cannot
//     see that both files were replaced by older ones, or cut at the same record.
//   - A full disk is an error of one Write. Room for some more batches is reserved where the file system can.
//   - Nothing is acknowledged once the files are no longer at their paths.
//
// # What it refuses
//
// It never begins an empty journal unless told to, and never writes when opened to read alone. It walks nothing and finds one key
// at a time: that is for the index. It is called by checkpoint, which locks the folder, and imports nothing of the project but checkpoint/disk.
package journal
