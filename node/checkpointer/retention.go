package checkpointer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"pnode/checkpoint"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// ID tells checkpoints apart: after a rollback a step is saved once more.
type ID struct {
	Step       plan.Step
	Generation plan.Generation
}

// IDOf returns the ID of a checkpoint.
func IDOf(c consensus.Checkpoint) ID { return ID{c.Step, c.Generation} }

// Commit stores the manifest of a state's newest checkpoint. It then drops the pins that the checkpoint
// replaces, and with their chunks all checkpoints but the newest and those that the run may go back to. Before the first
// checkpoint it does nothing.
func (c *Checkpointer) Commit(state consensus.State) error {
	made := state.Checkpoint
	if made.Step == 0 {
		return nil
	}
	if err := c.Store.Commit(manifestOf(state)); err != nil {
		return fmt.Errorf("checkpointer: keep the checkpoint of step %d: %w", made.Step, err)
	}
	ages := agesIn(c.Store)
	at := made.Time()
	if at.IsZero() {
		at = time.Now()
	}
	if err := ages.note(IDOf(made), at); err != nil {
		return err
	}
	if err := c.commitOlder(state); err != nil {
		return err
	}
	pins, err := c.Store.Pins()
	if err != nil {
		return err
	}
	for _, name := range pins {
		// The newest manifest may not have what replicas report of themselves late.
		if step, ok := pinStep(name); name == c.InitialPin || ok && (step < made.Step || step == made.Step && !strings.HasSuffix(name, ownPin)) {
			if err := c.Store.Unpin(name); err != nil {
				return err
			}
		}
	}
	if err := c.retain(state); err != nil {
		return err
	}
	kept, err := c.Store.Manifests()
	if err == nil {
		err = ages.retain(kept)
	}
	if err == nil {
		_, err = c.Store.Sweep()
	}
	return err
}

// commitOlder puts into manifests of older checkpoints what replicas have reported of themselves since.
func (c *Checkpointer) commitOlder(state consensus.State) error {
	for _, older := range state.Older {
		if len(older.Own) == 0 {
			continue
		}
		now := manifest(state, older)
		stored, err := c.Store.Manifest(older.Step)
		if err == nil && stored.Generation == now.Generation && !bytes.Equal(stored.Encode(), now.Encode()) {
			if err = c.Store.Commit(now); errors.Is(err, checkpoint.ErrNotFound) {
				c.Log.Debug("some of an older checkpoint is not here", "step", older.Step, "cause", err)
				continue
			}
		}
		if err != nil && !errors.Is(err, checkpoint.ErrNotFound) && !errors.Is(err, checkpoint.ErrCorrupt) {
			return fmt.Errorf("checkpointer: keep what replicas have for themselves of step %d: %w", older.Step, err)
		}
	}
	return nil
}

// manifestOf returns the manifest of a state's newest checkpoint.
func manifestOf(state consensus.State) checkpoint.Manifest {
	return manifest(state, state.Checkpoint)
}

// manifest returns that of a checkpoint of a state's run. A layer's holders are those that have not lost it with their processes; where all
// have, they are those that had it: a layer without any would count as this node's.
func manifest(state consensus.State, made consensus.Checkpoint) checkpoint.Manifest {
	layers := func(of []consensus.LayerRef) (layers []checkpoint.LayerState) {
		for _, l := range of {
			holders := l.Kept(state)
			if len(holders) == 0 {
				holders = l.Holders
			}
			layers = append(layers, checkpoint.LayerState{Layer: l.Layer, SizeBytes: l.SizeBytes, Chunks: l.Chunks, Holders: holders})
		}
		return layers
	}
	m := checkpoint.Manifest{Run: state.Run.Run, Step: made.Step, Generation: made.Generation, Layers: layers(made.Layers), Stream: made.Stream}
	for _, o := range made.Own {
		if len(o.Layers) > 0 {
			m.Own = append(m.Own, checkpoint.OwnState{Replica: o.Replica, Layers: layers(o.Layers)})
		}
	}
	return m
}

// awaited returns the steps whose checkpoints are not dropped yet.
func (c *Checkpointer) awaited() []plan.Step {
	if c.Awaited == nil {
		return nil
	}
	return c.Awaited()
}

// retain drops the checkpoints that are not kept. While a newer one than the state's is here none goes: the log is
// read again from an older state, or the run went back and does these steps once more.
func (c *Checkpointer) retain(state consensus.State) error {
	stored, err := c.Store.Manifests()
	if err != nil && !errors.Is(err, checkpoint.ErrCorrupt) {
		return err
	}
	if len(stored) > 0 && stored[0].Step > state.Checkpoint.Step {
		return nil
	}
	also := c.awaited()
	for _, older := range state.Older {
		also = append(also, older.Step)
	}
	return c.Store.Retain(1, also...)
}

// GiveUp drops the checkpoints of steps after one that the run went back to. Those of generations after the one
// that was given up stay: the log is read again, and the run has done these steps once more.
func (c *Checkpointer) GiveUp(after plan.Step, given plan.Generation) error {
	stored, err := c.Store.Manifests()
	if err != nil && !errors.Is(err, checkpoint.ErrCorrupt) {
		return err
	}
	var drop []plan.Step
	for _, m := range stored {
		if m.Step > after && m.Generation <= given {
			drop = append(drop, m.Step)
		}
	}
	return c.Store.Drop(drop...)
}

// Discard drops the checkpoints of generations after one, but those that a state has: this node's log was of another lineage, which shares
// them with the state's up to that one.
func (c *Checkpointer) Discard(shared plan.Generation, state consensus.State) error {
	stored, err := c.Store.Manifests()
	if err != nil && !errors.Is(err, checkpoint.ErrCorrupt) {
		return err
	}
	chunks := func(layers []checkpoint.LayerState) []plan.Hash { return checkpoint.Manifest{Layers: layers}.Hashes() } // of what is complete from the beginning
	var counts [][]plan.Hash
	for _, made := range consensus.Checkpoints(state) {
		counts = append(counts, chunks(manifestOf(consensus.State{Run: state.Run, Checkpoint: made}).Layers))
	}
	var drop []plan.Step
	for _, m := range stored {
		if m.Generation > shared && !slices.ContainsFunc(counts, func(of []plan.Hash) bool { return slices.Equal(of, chunks(m.Layers)) }) {
			drop = append(drop, m.Step)
		}
	}
	return c.Store.Drop(drop...)
}

// ages remembers in the store when checkpoints were committed, so that their age can be read while the node is stopped. Where
// the log does not say when it is since when this node has known them.
type ages struct{ bucket *checkpoint.Bucket }

func agesIn(store *checkpoint.Store) ages { return ages{store.Bucket("ages")} }

// keyBytes is the length of a checkpoint's key.
const keyBytes = 16

func (id ID) key() []byte {
	key := binary.BigEndian.AppendUint64(make([]byte, 0, keyBytes), uint64(id.Step))
	return binary.BigEndian.AppendUint64(key, uint64(id.Generation))
}

// note remembers that a checkpoint is known since now, unless it was known before.
func (a ages) note(id ID, now time.Time) error {
	if known, err := a.of(id); err != nil || !known.IsZero() {
		return err
	}
	value := binary.BigEndian.AppendUint64(nil, uint64(now.Unix()))
	return a.bucket.Write([]checkpoint.Op{{Key: id.key(), Value: value}})
}

// of returns since when a checkpoint is known, zero for one that is not.
func (a ages) of(id ID) (time.Time, error) {
	value, ok, err := a.bucket.Get(id.key())
	if err != nil || !ok || len(value) != 8 {
		return time.Time{}, err
	}
	return time.Unix(int64(binary.BigEndian.Uint64(value)), 0), nil
}

// retain forgets the checkpoints that are not kept any more.
func (a ages) retain(kept []checkpoint.Manifest) error {
	stay := map[string]bool{}
	for _, m := range kept {
		stay[string(ID{m.Step, m.Generation}.key())] = true
	}
	var drop []checkpoint.Op
	err := a.bucket.Scan(nil, false, func(key, _ []byte) bool {
		if !stay[string(key)] {
			drop = append(drop, checkpoint.Op{Key: key, Delete: true})
		}
		return len(drop) < checkpoint.MaxBatchOps
	})
	if err == nil && len(drop) > 0 {
		err = a.bucket.Write(drop)
	}
	if err != nil {
		return fmt.Errorf("checkpointer: forget the age of old checkpoints: %w", err)
	}
	return nil
}
