package consensus

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/hashicorp/raft"
)

func filled(t *testing.T, first, last uint64) (logStore, *memoryKV) {
	kv := newMemoryKV()
	s := logStore{kv}
	var logs []*raft.Log
	for i := first; i <= last; i++ {
		logs = append(logs, &raft.Log{Index: i, Term: 1, Data: fmt.Append(nil, i)})
	}
	if err := s.StoreLogs(logs); err != nil {
		t.Fatal(err)
	}
	return s, kv
}

func edges(t *testing.T, s logStore) [2]uint64 {
	first, err := s.FirstIndex()
	if err != nil {
		t.Fatal(err)
	}
	last, err := s.LastIndex()
	if err != nil {
		t.Fatal(err)
	}
	return [2]uint64{first, last}
}

func TestLogStore(t *testing.T) {
	s, kv := filled(t, 1, 300)
	// Neighbours in the bucket that are no log records.
	if err := s.Set([]byte("CurrentTerm"), binary.BigEndian.AppendUint64(nil, 4)); err != nil {
		t.Fatal(err)
	}
	snap := &snapshotStore{kv: kv}
	store(t, snap, 1, []byte("state"))
	if got := edges(t, s); got != [2]uint64{1, 300} {
		t.Fatalf("log %v", got)
	}
	for _, c := range []struct{ first, last, wantFirst, wantLast uint64 }{
		{1, 40, 41, 300}, {280, 300, 41, 279}, {10, 41, 42, 279}, {200, 1000, 42, 199}, {1, 1000, 0, 0},
	} {
		if err := s.DeleteRange(c.first, c.last); err != nil {
			t.Fatal(err)
		}
		if got := edges(t, s); got != [2]uint64{c.wantFirst, c.wantLast} {
			t.Fatalf("after deleting %d to %d the log is %v", c.first, c.last, got)
		}
	}
	if err := s.GetLog(100, new(raft.Log)); !errors.Is(err, raft.ErrLogNotFound) {
		t.Errorf("a deleted record gives %v", err)
	}
	if term, err := s.GetUint64([]byte("CurrentTerm")); err != nil || term != 4 {
		t.Errorf("term %d, %v", term, err)
	}
	if v, err := s.GetUint64([]byte("LastVoteTerm")); err != nil || v != 0 {
		t.Errorf("a number never set is %d, %v", v, err)
	}
}

// A write that is cut off anywhere leaves a log without a hole.
func TestLogStoreCutOff(t *testing.T) {
	big := make([]byte, maxWriteBytes/2)
	for _, c := range []struct{ first, last uint64 }{{1, 1500}, {1500, 3000}, {1, 3000}} {
		for writes := range 3 {
			_, kv := filled(t, 1, 3000)
			s := logStore{&failingKV{kv, writes}}
			err := s.DeleteRange(c.first, c.last)
			if (err == nil) != (writes > int(c.last-c.first)/1024) {
				t.Fatalf("deleting %d to %d with %d writes gives %v", c.first, c.last, writes, err)
			}
			whole(t, s)
		}
	}
	kv := newMemoryKV()
	s := logStore{&failingKV{kv, 1}}
	err := s.StoreLogs([]*raft.Log{{Index: 1, Data: big}, {Index: 2, Data: big}, {Index: 3}})
	if err == nil || edges(t, s) != [2]uint64{1, 1} {
		t.Errorf("after one of the writes the log is %v, %v", edges(t, s), err)
	}
}

func whole(t *testing.T, s logStore) {
	t.Helper()
	e := edges(t, s)
	for i := e[0]; i <= e[1] && i > 0; i++ {
		if err := s.GetLog(i, new(raft.Log)); err != nil {
			t.Fatalf("log %v: %d: %v", e, i, err)
		}
	}
}

// failingKV carries out so many writes and no more.
type failingKV struct {
	*memoryKV
	left int
}

func (f *failingKV) Write(c []Change) error {
	if f.left == 0 {
		return errors.New("no space left")
	}
	f.left--
	return f.memoryKV.Write(c)
}

func TestLogStoreCorrupt(t *testing.T) {
	s, kv := filled(t, 1, 3)
	kv.pairs[string(logKey(2))][20] ^= 1
	if err := s.GetLog(2, new(raft.Log)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a flipped byte gives %v", err)
	}
	kv.pairs[string(logKey(2))] = slices.Clone(kv.pairs[string(logKey(3))])
	if err := s.GetLog(2, new(raft.Log)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("another index's record gives %v", err)
	}
}

func store(t *testing.T, s *snapshotStore, index uint64, contents []byte) string {
	t.Helper()
	sink, err := s.Create(1, index, 1, raft.Configuration{}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sink.Write(contents); err != nil {
		t.Fatal(err)
	}
	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}
	return sink.ID()
}

func load(s *snapshotStore, id string) ([]byte, error) {
	_, r, err := s.Open(id)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

func TestSnapshotStore(t *testing.T) {
	kv := newMemoryKV()
	s := &snapshotStore{kv: kv}
	if list, err := s.List(); err != nil || len(list) != 0 {
		t.Fatalf("an empty store lists %v, %v", list, err)
	}
	long := bytes.Repeat([]byte("0123456789abcdef"), 3*maxWriteBytes/32) // one and a half pieces
	first := store(t, s, 5, long)
	if got, err := load(s, first); err != nil || !bytes.Equal(got, long) {
		t.Fatalf("%d bytes come back as %d, %v", len(long), len(got), err)
	}
	second := store(t, s, 9, []byte("short"))
	if _, err := load(s, first); err == nil {
		t.Error("a replaced snapshot can be opened")
	}
	if got, err := load(s, second); err != nil || string(got) != "short" {
		t.Errorf("%q, %v", got, err)
	}
	if len(kv.pairs) != 2 {
		t.Errorf("%d pairs are left, want head and piece", len(kv.pairs))
	}

	// One begun before a newer one was installed does not replace it.
	old, _ := s.Create(1, 8, 1, raft.Configuration{}, 1, nil)
	third := store(t, s, 12, []byte("newest"))
	old.Write([]byte("old"))
	if err := old.Close(); err == nil {
		t.Error("an older snapshot replaces a newer")
	}
	if list, err := s.List(); err != nil || len(list) != 1 || list[0].ID != third || list[0].Index != 12 {
		t.Errorf("%v, %v", list, err)
	}

	kv.pairs[string(pieceKey(number(t, third), 0))][2] ^= 1
	if _, err := load(s, third); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a flipped byte gives %v", err)
	}
}

// What a crash leaves of a snapshot that was not finished is swept by the next one.
func TestSnapshotCutOff(t *testing.T) {
	kv := newMemoryKV()
	s := &snapshotStore{kv: kv}
	first := store(t, s, 5, []byte("first"))
	for writes := range 3 {
		broken := &snapshotStore{kv: &failingKV{kv, writes}}
		sink, _ := broken.Create(1, 9, 1, raft.Configuration{}, 1, nil)
		sink.Write(make([]byte, 5*maxWriteBytes/2))
		if err := sink.Close(); err == nil {
			t.Fatal("it was stored in fewer writes than it has pieces")
		}
		if got, err := load(&snapshotStore{kv: kv}, first); err != nil || string(got) != "first" {
			t.Fatalf("after %d writes the first snapshot is %q, %v", writes, got, err)
		}
	}
	store(t, &snapshotStore{kv: kv}, 11, []byte("last"))
	if len(kv.pairs) != 2 {
		t.Errorf("%d pairs are left, want head and piece", len(kv.pairs))
	}
	sink, _ := s.Create(1, 12, 1, raft.Configuration{}, 1, nil)
	if _, err := sink.Write(make([]byte, MaxStateBytes+1)); !errors.Is(err, ErrMalformed) {
		t.Errorf("a snapshot over the limit gives %v", err)
	}
}
