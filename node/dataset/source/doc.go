// Package source reads documents out of files, one after the other, in bounded memory.
//
// # Formats
//
// The end of a file's name decides; .gz and .zst behind it are unpacked on the way.
//
//   - .jsonl, .ndjson: one JSON object a line; a field of it is the text of a document.
//   - .parquet: the rows of a column of strings.
//   - any other: UTF-8 text without NUL bytes. The file is one document, or its lines are
//     divided into documents by a line that separates.
//
// A byte order mark that begins a file of text or jsonl is no part of it. Empty documents are
// left out. What is not as it should be is an error that names file,
// line (or row) and remedy and wraps ErrMalformed; it can be skipped and counted instead,
// unless the rest of the file cannot be read then. A file that was found in a folder, not
// named, and does not begin like text is skipped in any case.
//
// # Nouns
//
//   - Files: the input in order, with its size for the progress.
//   - Document: the text of one, valid UTF-8, of at most MaxDocumentBytes.
//
// Package shard makes tokens of the documents. This is the only importer of parquet-go and
// of the decompressor of zstd.
package source
