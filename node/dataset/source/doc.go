// Package source reads documents out of files, one after the other, in bounded memory.
//
// # Formats
//
// What a file begins with decides (detect.go), and its name where that says nothing; gzip and zstd are unpacked on the way.
//
//   - JSON Lines: one JSON object a line; a field of it, the column, is the text of a document.
//   - CSV (RFC 4180), with a header; the separator is the one under which it has the column.
//   - Parquet: the rows of a column of strings.
//   - Text: UTF-8 without NUL bytes. The file is one document, or its lines are
//     divided into documents by a line that separates.
//
// A byte order mark that begins a file is no part of its text. What is left out is counted by
// the reason (Skipped): empty documents, and as many malformed ones as 1 in 100 of a file, or any number. More are an
// error that names file, line (or row) and remedy and wraps ErrMalformed; so is damage behind which the rest of the file
// cannot be read. A file that was found in a folder, not named, and is no text or lacks the column is passed over in any case.
//
// # Nouns
//
//   - Files: the input in order, with its size for the progress.
//   - Reader: an open file of a known format.
//   - Document: the text of one, valid UTF-8, of at most MaxDocumentBytes.
//
// # Bounds
//
// Files come from anywhere. A line is bounded before it is kept, what a file unpacks to by its size. The Parquet library allocates what a
// file says and unpacks without a bound: thrift.go goes through a file's structures before it, and pages.go through its pages.
//
// Package shard makes tokens of the documents, package corpus a stream of bytes. This is the only importer of parquet-go and
// of the decompressor of zstd.
package source
