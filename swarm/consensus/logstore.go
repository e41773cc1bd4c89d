package consensus

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"pnode/swarm/version"
)

// logStore keeps raft's log, term and vote in a KV.
type logStore struct{ kv KV }

func logKey(index uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{prefixLog}, index)
}

// logIndex returns the index in a key; false when the key is no log record's.
func logIndex(key []byte) (uint64, bool) {
	if len(key) != 9 || key[0] != prefixLog {
		return 0, false
	}
	return binary.BigEndian.Uint64(key[1:]), true
}

// FirstIndex returns the lowest index in the log, 0 when it is empty.
func (s logStore) FirstIndex() (uint64, error) { return s.edge(logKey(0), false) }

// LastIndex returns the highest index in the log, 0 when it is empty.
func (s logStore) LastIndex() (uint64, error) { return s.edge(logKey(math.MaxUint64), true) }

func (s logStore) edge(from []byte, reverse bool) (index uint64, err error) {
	err = s.kv.Scan(from, reverse, func(key, _ []byte) bool {
		index, _ = logIndex(key)
		return false
	})
	if err != nil {
		return 0, fmt.Errorf("consensus: find end of log: %w", err)
	}
	return index, nil
}

// GetLog reads one record; raft.ErrLogNotFound when there is none of that index.
func (s logStore) GetLog(index uint64, l *raft.Log) error {
	b, found, err := s.kv.Get(logKey(index))
	if err != nil {
		return fmt.Errorf("consensus: read log %d: %w", index, err)
	}
	if !found {
		return raft.ErrLogNotFound
	}
	if err := decodeLog(b, l); err != nil {
		return fmt.Errorf("consensus: read log %d: %w", index, err)
	}
	if l.Index != index {
		return fmt.Errorf("%w: log record %d under index %d", ErrCorrupt, l.Index, index)
	}
	return nil
}

// StoreLogs appends records in writes of bounded size and ascending order: what a crash
// leaves is the beginning of the log.
func (s logStore) StoreLogs(logs []*raft.Log) error {
	changes := make([]Change, len(logs))
	for i, l := range logs {
		changes[i] = Change{Key: logKey(l.Index), Value: encodeLog(l)}
	}
	if err := writeInParts(s.kv, changes); err != nil {
		return fmt.Errorf("consensus: append log: %w", err)
	}
	return nil
}

// DeleteRange deletes the records from first to last, both included, in several writes.
// The end of the log is deleted backwards and its beginning forwards, so that a crash
// leaves no hole.
func (s logStore) DeleteRange(first, last uint64) error {
	end, err := s.LastIndex()
	if err != nil {
		return err
	}
	var changes []Change
	err = s.kv.Scan(logKey(first), false, func(key, _ []byte) bool {
		index, ok := logIndex(key)
		if !ok || index > last {
			return false
		}
		changes = append(changes, Change{Key: slices.Clone(key), Delete: true})
		return true
	})
	if last >= end {
		slices.Reverse(changes)
	}
	if err == nil {
		err = writeInParts(s.kv, changes)
	}
	if err != nil {
		return fmt.Errorf("consensus: delete log %d to %d: %w", first, last, err)
	}
	return nil
}

// continues checks that the log goes on where a snapshot ends, whose last entry is index covered: 0 for no
// snapshot. It deletes what stands before a gap that the snapshot fills, which raft has no use for. An
// entry that neither holds is an error, which wraps ErrCorrupt.
func (s logStore) continues(covered uint64) error {
	var first, last, gap uint64 // gap: the last entry before a gap
	var missing error
	err := s.kv.Scan(logKey(0), false, func(key, _ []byte) bool {
		index, ok := logIndex(key)
		if !ok {
			return false
		}
		if index > last+1 && index > covered+1 {
			missing = fmt.Errorf("%w: log entries %d to %d are missing", ErrCorrupt, max(last, covered)+1, index-1)
		}
		if first == 0 {
			first = index
		} else if index > last+1 {
			gap = last
		}
		last = index
		return missing == nil
	})
	if err != nil {
		return fmt.Errorf("consensus: check log: %w", err)
	}
	if last < covered {
		gap = last
	}
	if missing != nil || gap == 0 {
		return missing
	}
	return s.DeleteRange(first, gap)
}

// writeInParts carries changes out in their order, in writes of at most maxWriteChanges and
// maxWriteBytes.
func writeInParts(kv KV, changes []Change) error {
	for n := 0; len(changes) > 0; changes = changes[n:] {
		size := 0
		for n = 0; n < min(len(changes), maxWriteChanges); n++ {
			if size += len(changes[n].Value); n > 0 && size > maxWriteBytes {
				break
			}
		}
		if err := kv.Write(changes[:n]); err != nil {
			return err
		}
	}
	return nil
}

func stableKey(name []byte) []byte { return append([]byte{prefixStable}, name...) }

// Set stores a value under raft's name for it.
func (s logStore) Set(name, value []byte) error {
	return s.set([]Change{{Key: stableKey(name), Value: value}})
}

func (s logStore) set(changes []Change) error {
	if err := s.kv.Write(changes); err != nil {
		return fmt.Errorf("consensus: store %s: %w", changes[0].Key[1:], err)
	}
	return nil
}

// Get reads a value; empty when there is none.
func (s logStore) Get(name []byte) ([]byte, error) {
	v, _, err := s.kv.Get(stableKey(name))
	if err != nil {
		return nil, fmt.Errorf("consensus: read %s: %w", name, err)
	}
	return v, nil
}

// GetUint64 reads a number; 0 when there is none.
func (s logStore) GetUint64(name []byte) (uint64, error) {
	b, err := s.Get(name)
	if err != nil || len(b) == 0 {
		return 0, err
	}
	if len(b) != 8 {
		return 0, fmt.Errorf("%w: %s has %d bytes, want 8", ErrCorrupt, name, len(b))
	}
	return binary.BigEndian.Uint64(b), nil
}

// A log record: checksum (4 bytes, CRC-32C of the rest), version, type, index, term,
// time of append in ns, length of the data, data, extensions. Little-endian.
const (
	recordVersion = 1
	recordHeader  = 4 + 1 + 1 + 8 + 8 + 8 + 4
	// maxRecordBytes bounds a record: an entry, or raft's own configuration entry.
	maxRecordBytes = recordHeader + MaxEntryBytes + 64<<10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func encodeLog(l *raft.Log) []byte {
	b := make([]byte, recordHeader, recordHeader+len(l.Data)+len(l.Extensions))
	b[4], b[5] = recordVersion, byte(l.Type)
	le := binary.LittleEndian
	le.PutUint64(b[6:], l.Index)
	le.PutUint64(b[14:], l.Term)
	if !l.AppendedAt.IsZero() {
		le.PutUint64(b[22:], uint64(l.AppendedAt.UnixNano()))
	}
	le.PutUint32(b[30:], uint32(len(l.Data)))
	b = append(append(b, l.Data...), l.Extensions...)
	le.PutUint32(b, crc32.Checksum(b[4:], castagnoli))
	return b
}

// decodeLog reads a record into l, which keeps nothing of b.
func decodeLog(b []byte, l *raft.Log) error {
	if len(b) < recordHeader || len(b) > maxRecordBytes {
		return fmt.Errorf("%w log record: %d bytes", ErrMalformed, len(b))
	}
	le := binary.LittleEndian
	if got, want := crc32.Checksum(b[4:], castagnoli), le.Uint32(b); got != want {
		return fmt.Errorf("%w: log record has checksum %08x, want %08x", ErrCorrupt, got, want)
	}
	if b[4] != recordVersion {
		return fmt.Errorf("%w: %w", ErrMalformed, version.Unknown("a log record", int(b[4]), recordVersion))
	}
	body, n := b[recordHeader:], le.Uint32(b[30:])
	if uint64(n) > uint64(len(body)) {
		return fmt.Errorf("%w log record: data of %d bytes in %d", ErrMalformed, n, len(body))
	}
	*l = raft.Log{Type: raft.LogType(b[5]), Index: le.Uint64(b[6:]), Term: le.Uint64(b[14:])}
	if ns := le.Uint64(b[22:]); ns != 0 {
		l.AppendedAt = time.Unix(0, int64(ns))
	}
	l.Data = append(l.Data, body[:n]...)
	l.Extensions = append(l.Extensions, body[n:]...)
	return nil
}

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

// snapshotStore keeps the newest snapshot in a KV: its contents in pieces, written first,
// and then the head that makes them count. Pieces of another snapshot than the head's are
// swept when the next one is stored.
type snapshotStore struct {
	kv KV
	// mu guards last and orders the writers: raft's snapshot loop and an install from the
	// leader.
	mu   sync.Mutex
	last uint64 // highest number given out
}

// snapshotHead describes a snapshot for raft, and its contents.
type snapshotHead struct {
	Number   uint64            `json:"number"`
	Meta     raft.SnapshotMeta `json:"meta"`
	Pieces   uint32            `json:"pieces"`
	Checksum uint32            `json:"checksum"` // CRC-32C of the contents
}

func pieceKey(number uint64, piece uint32) []byte {
	key := binary.BigEndian.AppendUint64([]byte{prefixSnapshot}, number)
	return binary.BigEndian.AppendUint32(key, piece)
}

// Create begins a snapshot, which counts when the sink is closed.
func (s *snapshotStore) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration, configurationIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	head, err := s.head()
	if err != nil {
		return nil, err
	}
	s.last = max(s.last, head.Number) + 1
	return &snapshotSink{store: s, number: s.last, meta: raft.SnapshotMeta{
		Version: version, ID: strconv.FormatUint(s.last, 10), Index: index, Term: term,
		Configuration: configuration, ConfigurationIndex: configurationIndex,
	}}, nil
}

// List returns the newest snapshot, if there is one.
func (s *snapshotStore) List() ([]*raft.SnapshotMeta, error) {
	head, err := s.head()
	if err != nil || head.Number == 0 {
		return nil, err
	}
	return []*raft.SnapshotMeta{&head.Meta}, nil
}

// head reads which snapshot counts; number 0 is none.
func (s *snapshotStore) head() (snapshotHead, error) {
	var head snapshotHead
	b, found, err := s.kv.Get([]byte{prefixHead})
	if err != nil {
		return head, fmt.Errorf("consensus: find snapshot: %w", err)
	}
	if !found {
		return head, nil
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return head, fmt.Errorf("%w: head of the snapshot: %w", ErrCorrupt, err)
	}
	return head, nil
}

// Open reads the newest snapshot, whole; it may be replaced while the reader is read.
func (s *snapshotStore) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	head, err := s.head()
	if err != nil {
		return nil, nil, err
	}
	if head.Meta.ID != id {
		return nil, nil, fmt.Errorf("consensus: open snapshot %s: it was replaced", id)
	}
	if head.Meta.Size < 0 || head.Meta.Size > MaxStateBytes {
		return nil, nil, fmt.Errorf("%w: snapshot %s of %d bytes", ErrCorrupt, id, head.Meta.Size)
	}
	contents := make([]byte, 0, head.Meta.Size)
	for i := range head.Pieces {
		piece, found, err := s.kv.Get(pieceKey(head.Number, i))
		if err != nil {
			return nil, nil, fmt.Errorf("consensus: open snapshot %s: %w", id, err)
		}
		if !found || len(contents)+len(piece) > MaxStateBytes {
			return nil, nil, fmt.Errorf("%w: snapshot %s: piece %d of %d", ErrCorrupt, id, i, head.Pieces)
		}
		contents = append(contents, piece...)
	}
	if int64(len(contents)) != head.Meta.Size || crc32.Checksum(contents, castagnoli) != head.Checksum {
		return nil, nil, fmt.Errorf("%w: snapshot %s: length or checksum differs", ErrCorrupt, id)
	}
	return &head.Meta, io.NopCloser(bytes.NewReader(contents)), nil
}

// commit stores what the sink gathered and makes it the newest snapshot.
func (s *snapshotStore) commit(k *snapshotSink) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, err := s.head()
	if err != nil {
		return err
	}
	if old.Meta.Index > k.meta.Index {
		return fmt.Errorf("a snapshot of index %d is newer than %d", old.Meta.Index, k.meta.Index)
	}
	if err := s.sweep(old.Number); err != nil {
		return err
	}
	head := snapshotHead{Number: k.number, Meta: k.meta, Checksum: crc32.Checksum(k.contents, castagnoli)}
	head.Meta.Size = int64(len(k.contents))
	var pieces []Change
	for piece := range slices.Chunk(k.contents, maxWriteBytes) {
		pieces = append(pieces, Change{Key: pieceKey(head.Number, head.Pieces), Value: piece})
		head.Pieces++
	}
	value, err := json.Marshal(head)
	if err != nil {
		return err
	}
	if err := writeInParts(s.kv, pieces); err != nil {
		return err
	}
	if err := s.kv.Write([]Change{{Key: []byte{prefixHead}, Value: value}}); err != nil {
		return err
	}
	return s.sweep(head.Number)
}

// sweep deletes the pieces of all snapshots but one.
func (s *snapshotStore) sweep(keep uint64) error {
	var changes []Change
	err := s.kv.Scan([]byte{prefixSnapshot}, false, func(key, _ []byte) bool {
		if key[0] != prefixSnapshot {
			return false
		}
		if len(key) != 13 || binary.BigEndian.Uint64(key[1:]) != keep {
			changes = append(changes, Change{Key: slices.Clone(key), Delete: true})
		}
		return true
	})
	if err != nil {
		return err
	}
	return writeInParts(s.kv, changes)
}

// snapshotSink gathers a snapshot of at most MaxStateBytes in memory.
type snapshotSink struct {
	store    *snapshotStore
	number   uint64
	meta     raft.SnapshotMeta
	contents []byte
}

func (k *snapshotSink) Write(b []byte) (int, error) {
	if len(k.contents)+len(b) > MaxStateBytes {
		return 0, fmt.Errorf("%w snapshot: more than %d bytes", ErrMalformed, MaxStateBytes)
	}
	k.contents = append(k.contents, b...)
	return len(b), nil
}

// Close makes the snapshot the newest.
func (k *snapshotSink) Close() error {
	if err := k.store.commit(k); err != nil {
		return fmt.Errorf("consensus: store snapshot %s: %w", k.meta.ID, err)
	}
	return nil
}

// Cancel forgets what was written.
func (k *snapshotSink) Cancel() error {
	k.contents = nil
	return nil
}

// ID returns the name that Open takes.
func (k *snapshotSink) ID() string { return k.meta.ID }
