package plan

import (
	"fmt"
	"slices"

	"pnode/pipeline/model"
)

// InParts tells whether the replicas hold a layer's optimizer state in parts.
func (p Plan) InParts(layer int) bool { return p.Sharded.Contains(layer) }

// Share is what a replica has of a layer's optimizer state.
func (p Plan) Share(r Replica, layer int) model.Share {
	if !p.InParts(layer) {
		return model.Share{}
	}
	return model.Share{Index: int(r), Count: len(p.Replicas)}
}

// Shares are those of a stage's layers, nil where it has all of every layer.
func (p Plan) Shares(h StageID) []model.Share {
	layers := p.At(h).Layers
	if !slices.ContainsFunc(p.Sharded, func(r LayerRange) bool { return r.First < layers.End && layers.First < r.End }) {
		return nil
	}
	shares := make([]model.Share, layers.Len())
	for i := range shares {
		shares[i] = p.Share(h.Replica, layers.First+i)
	}
	return shares
}

// checkSharded wants ranges of layers in order, none next to another, and somebody for every
// part.
func (p Plan) checkSharded(layers int) error {
	if len(p.Sharded) > 0 && len(p.Replicas) == 1 {
		return fmt.Errorf("%w: one replica holds parts of its optimizer state, nobody the rest", ErrBadPlan)
	}
	next := 0
	for _, r := range p.Sharded {
		if r.First < next || r.End <= r.First || r.End > layers {
			return fmt.Errorf("%w: optimizer state of layers [%d,%d) of %d is in parts, want ranges in order within the layers, none empty or next to another", ErrBadPlan, r.First, r.End, layers)
		}
		next = r.End + 1
	}
	return nil
}

// CheckTied wants both ends of a model's tied embedding alike in what is in parts: their gradients
// are added up part by part. The error wraps ErrBadPlan.
func (p Plan) CheckTied(m model.Config) error {
	if last := m.Layers() - 1; m.TiedGradLen() > 0 && p.InParts(0) != p.InParts(last) {
		return fmt.Errorf("%w: of the tied embedding one end has its optimizer state in parts, layers 0 and %d must be alike", ErrBadPlan, last)
	}
	return nil
}
