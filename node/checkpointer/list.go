package checkpointer

import (
	"errors"
	"slices"

	"pnode/checkpoint"
	"pnode/node/api"
	"pnode/planner/plan"
)

// List returns the checkpoints in a store, with what is damaged. nameOf returns what people call a node.
func List(store *checkpoint.Store, nameOf func(plan.PeerID) string) (api.CheckpointList, error) {
	manifests, err := store.Manifests()
	index := store.IndexDamage()
	list := api.CheckpointList{Checkpoints: []api.StoredCheckpoint{}}
	switch {
	case errors.Is(err, checkpoint.ErrCorrupt):
		list.Damaged = err.Error()
	case err != nil:
		return list, err
	}
	if index != nil {
		list.Index = index.Error()
	}
	for _, m := range manifests {
		c := summarize(m, store.HasChunk, nameOf)
		if c.Time, err = agesIn(store).of(ID{m.Step, m.Generation}); err != nil && index == nil {
			return list, err
		}
		list.Checkpoints = append(list.Checkpoints, c)
	}
	return list, nil
}

// summarize counts a checkpoint's copies as those of the layer with the fewest. has reports whether a chunk is in this store.
func summarize(m checkpoint.Manifest, has func(plan.Hash) bool, nameOf func(plan.PeerID) string) api.StoredCheckpoint {
	c := api.StoredCheckpoint{Step: m.Step, Generation: m.Generation, Layers: len(m.Layers)}
	for i, l := range m.Layers {
		c.SizeBytes += l.SizeBytes
		c.Holders = append(c.Holders, l.Holders...)
		if i == 0 || len(l.Holders) < c.Copies {
			c.Copies = len(l.Holders)
		}
		if !slices.ContainsFunc(l.Chunks, func(h plan.Hash) bool { return !has(h) }) {
			c.Here++
		}
	}
	slices.Sort(c.Holders)
	c.Holders = slices.Compact(c.Holders)
	for _, p := range c.Holders {
		c.HolderNames = append(c.HolderNames, nameOf(p))
	}
	return c
}
