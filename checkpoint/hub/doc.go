// Package hub downloads models from the Hugging Face hub, or from a mirror that answers as it does.
//
// # Nouns
//
//   - Ref: a model and a revision of it, hf:ORG/NAME@REV.
//   - Client: where the hub is, and the token to show there.
//   - listing: the files of one commit, with sizes and checksums. Of these a model needs config.json, the tokenizer and
//     safetensors; weights in pickles are refused, which are programs.
//   - Pull: brings a model into a folder, complete or not at all.
//
// # The way of a file
//
// ORG/NAME/resolve/COMMIT/FILE of the hub redirects to another host for large files. The token goes to the hub's own
// host alone. A file is written behind its name with ".part" in a folder whose name ends with ".partial". What is there
// of it stays when the connection or the process ends, and the next request asks for the rest. It gets its name when its
// size and its checksum are right: the SHA-256 of large files, the SHA-1 of git's blobs of others. The folder gets its name
// when all files have theirs.
//
// # Refusals
//
// The hub is not trusted to be well: answers, names, numbers of files and sizes are bounded, the room on the disk is looked
// at before a byte is written, and a connection that brings nothing for a while is ended. 429 and 5xx are asked again,
// later and later, or when the answer says.
//
// Commands call it. It knows no layout of a model: whoever calls it gets to see config.json before the weights are fetched.
package hub
