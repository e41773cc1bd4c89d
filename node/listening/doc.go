// Package listening counts for how long this node has listened for each voter of its run without hearing it, over the node's
// starts. pnode recover wants such a silence of ten minutes, and need not begin from zero after a restart that way.
//
// Listening is its one noun. What earlier starts counted is in the file "silence" of the node's folder: up to eight minutes for
// each voter, so that two minutes of the ten are always those of the running process. A voter that is heard
// begins anew. Only monotonic time of processes counts: neither clocks nor the time between two starts matter.
//
// It starts no goroutines: package node runs Run, and hands Silent to the consensus. It never imports node or its other rooms.
package listening
