package feed

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// maxEntries bounds the entries of one message, as raft's own does; maxBatchBytes their data.
const (
	maxEntries    = 16
	maxBatchBytes = 4 << 20
)

// Cursor says what a follower lacks. Begin makes one.
type Cursor struct {
	next uint64 // entry that the follower lacks, as far as is known
	told uint64 // how much is committed, as the follower has confirmed
}

// Begin returns the cursor of a follower whose log ends at an index, where so much is committed. What the follower has
// beyond that may be of no leader.
func Begin(index, commit uint64) Cursor { return Cursor{next: min(index, commit) + 1} }

// Span returns the entries to send, after prev up to last: none where both are equal, and the follower only lacks the
// news that they are committed. due is false where it lacks nothing.
func (c Cursor) Span(commit uint64) (prev, last uint64, due bool) {
	prev = c.next - 1
	return prev, max(prev, min(commit, prev+maxEntries)), c.told < commit && prev <= commit
}

// Took notes that the follower has all entries up to last, and knows that they are committed.
func (c *Cursor) Took(last uint64) { c.next, c.told = last+1, last }

// Refused notes that the follower's log is another one at the entry before next, and ends at an index.
func (c *Cursor) Refused(end uint64) { c.next = max(min(c.next-1, end+1), 1) }

// Opening holds what a follower says first.
type Opening struct {
	// Index is the last entry of its log.
	Index uint64
	// Last says that no voter but the leader would feed it.
	Last bool
}

// OpeningBytes is the length of an encoded Opening.
const OpeningBytes = 9

// ErrMalformed is wrapped by the refusal of bytes that are no Opening.
var ErrMalformed = errors.New("malformed request for the log")

// Encode returns the opening's bytes: flags, and the index in little-endian.
func (o Opening) Encode() []byte {
	b := []byte{0}
	if o.Last {
		b[0] = 1
	}
	return binary.LittleEndian.AppendUint64(b, o.Index)
}

// Decode reads what Encode wrote.
func Decode(b []byte) (Opening, error) {
	if len(b) != OpeningBytes || b[0] > 1 {
		return Opening{}, fmt.Errorf("%w: %d bytes", ErrMalformed, len(b))
	}
	return Opening{Index: binary.LittleEndian.Uint64(b[1:]), Last: b[0] == 1}, nil
}
