package node

import (
	"encoding/binary"
	"fmt"
	"time"

	"pnode/checkpoint"
	"pnode/planner/plan"
)

// ages remember in the store since when this node has known its checkpoints, so that a stopped
// node can tell as well.
type ages struct{ bucket *checkpoint.Bucket }

func agesIn(store *checkpoint.Store) ages { return ages{store.Bucket("ages")} }

// checkpointIDBytes is the length of a checkpoint's key.
const checkpointIDBytes = 16

func (id checkpointID) key() []byte {
	key := binary.BigEndian.AppendUint64(make([]byte, 0, checkpointIDBytes), uint64(id.step))
	return binary.BigEndian.AppendUint64(key, uint64(id.generation))
}

// note remembers that a checkpoint is known since now, unless it was known before.
func (a ages) note(id checkpointID, now time.Time) error {
	if known, err := a.of(id); err != nil || !known.IsZero() {
		return err
	}
	value := binary.BigEndian.AppendUint64(nil, uint64(now.Unix()))
	return a.bucket.Write([]checkpoint.Op{{Key: id.key(), Value: value}})
}

// of is since when a checkpoint is known; zero when that is not.
func (a ages) of(id checkpointID) (time.Time, error) {
	value, ok, err := a.bucket.Get(id.key())
	if err != nil || !ok || len(value) != 8 {
		return time.Time{}, err
	}
	return time.Unix(int64(binary.BigEndian.Uint64(value)), 0), nil
}

// retain forgets the checkpoints that are not kept any more.
func (a ages) retain(kept []checkpoint.Manifest) error {
	stay := map[checkpointID]bool{}
	for _, m := range kept {
		stay[checkpointID{m.Step, m.Generation}] = true
	}
	var drop []checkpoint.Op
	err := a.bucket.Scan(checkpoint.ScanOptions{Limit: checkpoint.MaxBatchOps}, func(key, _ []byte) error {
		if id, ok := parseCheckpointID(key); !ok || !stay[id] {
			drop = append(drop, checkpoint.Op{Key: key, Delete: true})
		}
		return nil
	})
	if err == nil && len(drop) > 0 {
		err = a.bucket.Write(drop)
	}
	if err != nil {
		return fmt.Errorf("node: forget the age of old checkpoints: %w", err)
	}
	return nil
}

func parseCheckpointID(key []byte) (id checkpointID, ok bool) {
	if len(key) != checkpointIDBytes {
		return id, false
	}
	step, generation := binary.BigEndian.Uint64(key), binary.BigEndian.Uint64(key[8:])
	return checkpointID{plan.Step(step), plan.Generation(generation)}, true
}
