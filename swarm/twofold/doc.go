// Package twofold stores the small files that a node cannot do without, such as its keys and its membership,
// in two copies: FILE and FILE.copy. Each copy is written whole or not at all, and ends with a checksum. When one is damaged
// or missing, the other counts and takes its place.
//
// The package does not know what is in the files: the caller's parse function accepts a copy or refuses
// it. Of two valid copies the first counts. The second may be one write older, after a crash.
//
// It is called by swarm (keys) and node (membership, run, losses), and imports nothing of the project.
package twofold
