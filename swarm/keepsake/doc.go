// Package keepsake keeps the small files that a node cannot do without, its keys and its
// membership, in two copies: FILE and FILE.copy. Each is written whole or not at all. When
// one of them is damaged or gone, the other is what counts, and takes its place.
//
// The package does not know what is in the files: whoever reads one parses it. Of two
// valid copies the first counts; the second is an older one at the most, where a crash came
// between two writes.
//
// It is called by swarm (keys) and node (membership), and imports nothing of the project.
package keepsake
