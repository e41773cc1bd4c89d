package node

import (
	"cmp"
	"errors"
	"log/slog"
	"slices"

	"pnode/checkpoint"
	"pnode/node/api"
	"pnode/planner/plan"
)

// Checkpoints lists what this node keeps, for the local API.
func (n *Node) Checkpoints() (api.CheckpointList, error) {
	return listCheckpoints(n.store)
}

// StoredCheckpoints lists what a node that does not run keeps in its folder.
func StoredCheckpoints(dir string, log *slog.Logger) (api.CheckpointList, error) {
	store, err := readStore(dir, log)
	if err != nil {
		return api.CheckpointList{}, err
	}
	list, err := listCheckpoints(store)
	return list, errors.Join(err, store.Close())
}

// listCheckpoints reads the manifests; damaged ones are told in the list.
func listCheckpoints(store *checkpoint.Store) (api.CheckpointList, error) {
	manifests, err := store.Manifests()
	list := api.CheckpointList{Checkpoints: []api.StoredCheckpoint{}}
	switch {
	case errors.Is(err, checkpoint.ErrCorrupt):
		list.Damaged = err.Error()
	case err != nil:
		return list, err
	}
	for _, m := range manifests {
		c := summarizeManifest(m)
		if c.Time, err = agesIn(store).of(checkpointID{m.Step, m.Generation}); err != nil {
			return list, err
		}
		list.Checkpoints = append(list.Checkpoints, c)
	}
	return list, nil
}

func summarizeManifest(m checkpoint.Manifest) api.StoredCheckpoint {
	c := api.StoredCheckpoint{Step: m.Step, Generation: m.Generation, Layers: len(m.Layers)}
	for i, l := range m.Layers {
		c.SizeBytes += l.SizeBytes
		c.Holders = append(c.Holders, l.Holders...)
		if i == 0 || len(l.Holders) < c.Copies {
			c.Copies = len(l.Holders)
		}
	}
	slices.SortFunc(c.Holders, func(a, b plan.PeerID) int { return cmp.Compare(a, b) })
	c.Holders = slices.Compact(c.Holders)
	return c
}
