package plan

import (
	"fmt"
	"slices"
	"strings"

	"pnode/pipeline/model"
	"pnode/pipeline/muon"
)

// OptimizerRule says how parameters are updated. The zero value is AdamW's.
type OptimizerRule uint8

// The rules.
const (
	AdamW OptimizerRule = iota
	// Muon updates the matrices of blocks by their momentum made orthogonal (package muon), and all else by AdamW.
	Muon
	optimizerRules
)

var optimizerNames = [optimizerRules]string{"adamw", "muon"}

func (r OptimizerRule) String() string {
	if r >= optimizerRules {
		return "invalid"
	}
	return optimizerNames[r]
}

// OptimizerRules returns the texts of all rules, the default first.
func OptimizerRules() []string { return optimizerNames[:] }

// ParseOptimizer reads a rule; the error wraps ErrBadInput.
func ParseOptimizer(text string) (OptimizerRule, error) {
	i := slices.Index(optimizerNames[:], text)
	if i < 0 {
		return 0, fmt.Errorf("%w: optimizer is %q: want one of %s", ErrBadInput, text, strings.Join(optimizerNames[:], ", "))
	}
	return OptimizerRule(i), nil
}

// MarshalText returns the rule's text.
func (r OptimizerRule) MarshalText() ([]byte, error) {
	if r >= optimizerRules {
		return nil, fmt.Errorf("%w: optimizer is %d: take a rule from %d to %d", ErrBadInput, uint8(r), AdamW, optimizerRules-1)
	}
	return []byte(r.String()), nil
}

// UnmarshalText reads a rule's text.
func (r *OptimizerRule) UnmarshalText(text []byte) (err error) {
	*r, err = ParseOptimizer(string(text))
	return err
}

// Matrices returns the matrices of a layer that are updated as a whole, none with AdamW.
func (s RunSpec) Matrices(layer int) []model.Tensor {
	if s.Train.Optimizer != Muon {
		return nil
	}
	return s.Model.Matrices(layer)
}

// StateLayout returns which optimizer state the layers have, and how replicas share it.
func (s RunSpec) StateLayout() model.StateLayout {
	return model.StateLayout{Model: s.Model, WholeMatrices: s.Train.Optimizer == Muon}
}

// ShareBytes returns the most that one of so many replicas has of a layer's optimizer state, where they have it in parts.
func (s RunSpec) ShareBytes(layer, replicas int) (most int64) {
	for r := range replicas {
		elements := 0
		for i := range MomentVectors {
			elements += model.Total(s.StateLayout().Owned(layer, i, model.Share{Index: r, Count: replicas}))
		}
		most = max(most, 4*int64(elements))
	}
	return most
}

// MomentBytes returns the size of a layer's optimizer state.
func MomentBytes(k model.LayerCost) int64 {
	return MomentVectors*(k.ParamBytes-k.FrozenBytes) - (MomentVectors-1)*k.OneMomentBytes
}

// Scratch returns how many elements an update of some layers needs besides what it changes: the most that one matrix does, and
// a norm for each.
func (s RunSpec) Scratch(layers LayerRange) int {
	most, norms := 0, 0
	for l := layers.First; l < layers.End; l++ {
		for _, m := range s.Matrices(l) {
			most, norms = max(most, muon.ScratchLen(m.Shape[0], m.Shape[1])), norms+1
		}
	}
	return most + norms
}

// Costs returns what each layer takes for a micro-batch in a storage, and for an update.
func (s RunSpec) Costs(as model.Storage) []model.LayerCost {
	costs := s.Model.Costs(s.Train.MicroBatch, as)
	for l := range costs {
		for _, m := range s.Matrices(l) {
			costs[l].UpdateFLOPs += muon.FLOPs(m.Shape[0], m.Shape[1])
			costs[l].OneMomentBytes += 4 * int64(m.Len())
		}
	}
	return costs
}
