package consensus

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strconv"
	"sync"

	"github.com/hashicorp/raft"
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
