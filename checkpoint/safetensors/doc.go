// Package safetensors reads and writes the file format in which Hugging Face keeps weights:
// eight bytes with the length of a JSON header, the header, then the tensors' bytes.
//
// # Nouns
//
//   - Tensor: name, element type and shape, as the header lists it.
//   - File: one file opened for reading, a tensor or a part of one at a time.
//   - Set: the weights of a folder: `model.safetensors`, or the shards that
//     `model.safetensors.index.json` names.
//   - Writer, SetWriter: the same for writing. Tensors come in any order and in parts; the
//     files get their names in Commit, complete or not at all.
//
// Nothing is held in memory but headers and one part of a tensor. Files are read through
// io.ReaderAt, so a File may be used from several goroutines.
//
// # What it refuses
//
// A header over MaxHeaderBytes or longer than its file, which is then not read at all; more than
// MaxTensors tensors or entries of metadata, long names and shapes; JSON that is not exactly what the
// format says (unknown or repeated keys, numbers that are no unsigned integers), element
// types it does not know, and tensors that overlap, leave gaps or do not end where the file
// ends: bytes that no tensor owns could hide something. A set must hold exactly the tensors
// of its index. Types other than F32, F16 and BF16 are listed and can be copied as bytes;
// converting them is refused by name.
//
// Files it writes are byte for byte those of the reference writer: header padded with
// spaces to a multiple of 8, tensors by falling alignment, then by name.
//
// Package huggingface is the caller. It never interprets names.
package safetensors
