package node

import (
	"errors"

	"pnode/checkpoint"
	"pnode/swarm/consensus"
)

// raftStore keeps the consensus log in a bucket of the checkpoint store (consensus.KV).
type raftStore struct{ *checkpoint.Bucket }

func (s raftStore) Write(changes []consensus.Change) error {
	batch := make([]checkpoint.Op, len(changes))
	for i, c := range changes {
		batch[i] = checkpoint.Op(c)
	}
	return s.Bucket.Write(batch)
}

// errEnough ends a scan early.
var errEnough = errors.New("enough")

func (s raftStore) Scan(from []byte, reverse bool, visit func(key, value []byte) bool) error {
	err := s.Bucket.Scan(checkpoint.ScanOptions{From: from, Reverse: reverse}, func(key, value []byte) error {
		if !visit(key, value) {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}
