// Package inventory knows the nodes of this machine's user, wherever their folders are: those that run, and those that ended.
//
// # Nouns
//
//   - Register: one small file for each folder in which a node was started, in the user's folder for state. A file has the folder and when the
//     node was started, and nothing secret.
//   - Node: what is known of the node in one folder: its run, what it does, and the command that helps.
//
// Each start writes a file of its own in one step, so that two starts never write the same one. What the register says is a hint where to look:
// whether a node runs is asked of the node, whether it ended is read from its folder and that folder's lock. Files that are damaged
// are left out, and removed by the next start. Folders that hold no run any more are left out. The register keeps the newest MaxFolders.
//
// cmd/pnode notes starts and lists. The package imports node/api, node/config and checkpoint; what a folder's membership says it is given.
package inventory
