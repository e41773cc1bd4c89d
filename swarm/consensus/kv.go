package consensus

// KV is the transactional store that log, votes and snapshots are kept in: one bucket,
// used by one node. Keys sort as bytes. An implementation must not keep the slices it is
// given. A node whose store cannot be written or read takes part no longer
// ([Node.Failed]), so the store should keep some space in reserve.
type KV interface {
	// Get gives a copy of the value of key.
	Get(key []byte) (value []byte, found bool, err error)
	// Write carries out all changes or none, in order, and returns when they are durable.
	Write(changes []Change) error
	// Scan visits the pairs in ascending order beginning with the first key not less than
	// from, or in descending order beginning with the last key not greater than from,
	// until visit returns false. Key and value are valid during the visit only.
	Scan(from []byte, reverse bool, visit func(key, value []byte) bool) error
}

// Change sets Key to Value, or deletes Key.
type Change struct {
	Key, Value []byte
	Delete     bool
}

// Keys: the first byte says what it is, so that a bucket can hold all of it.
const (
	prefixLog      = 'l' // + index, big-endian: log record
	prefixStable   = 'v' // + raft's name: term and vote
	prefixHead     = 'h' // alone: which snapshot counts
	prefixLineage  = 'r' // alone: which lineage the log is of
	prefixSnapshot = 's' // + number, + piece, big-endian: contents of a snapshot
)

// A Write carries at most maxWriteChanges, and maxWriteBytes of values; a larger value goes alone.
const (
	maxWriteChanges = 1024
	maxWriteBytes   = 256 << 10
)
