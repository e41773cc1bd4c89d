package meeting

import (
	"fmt"
	"slices"

	"pnode/pipeline/outer"
	"pnode/planner/plan"
)

// Weights returns by replica the share of its outer gradient in the mean of an outer step: that of the micro-batches that it trained on.
func Weights(p plan.Plan, m plan.Merged) []float32 {
	micros := make([]int64, len(m.Parts))
	for r, part := range m.Parts {
		micros[r] = int64(part.Steps) * int64(p.Replicas[r].Micros)
	}
	return outer.Weights(micros)
}

// Merge makes the outer step of a layer, with the weights of all replicas, and returns its trained parameters: the reference, and unless nil, what
// inner steps have made of the offered ones since, now [TrainedLen]. They are valid until the next call. The head of a tied embedding takes what Tied returns where the embedding is; others nil. A replica that is
// not counted has nothing to merge: what its messages lack is not what the others know of it.
func (m *Meeting) Merge(number int, weights, tied, now []float32) ([]float32, error) {
	l, err := m.find(number)
	if err != nil {
		return nil, err
	}
	if len(weights) != m.cfg.Replicas || weights[m.cfg.Replica] == 0 {
		return nil, fmt.Errorf("%w: weights %v in an outer step of replica %d of %d", ErrConfig, weights, m.cfg.Replica, m.cfg.Replicas)
	}
	v := m.vectors(l)
	mean, copied := floats(v.Gradient), 0
	if number == m.cfg.Model.Layers()-1 {
		copied = m.cfg.Model.TiedGradLen()
	}
	if now != nil && (len(now) != l.len || !l.left.Present()) {
		return nil, fmt.Errorf("%w: a late outer step of layer %d of %d parameters: got %d", ErrConfig, number, l.len, len(now))
	}
	if len(tied) != copied {
		return nil, fmt.Errorf("%w: %d elements of a tied embedding for layer %d, want %d", ErrConfig, len(tied), number, copied)
	}
	clear(mean)
	for r, weight := range weights {
		if weight == 0 {
			continue
		}
		if l.messages[r] == nil {
			return nil, fmt.Errorf("%w: of replica %d for layer %d", ErrMissing, r, number)
		}
		if err := m.add(mean, weight, l, l.messages[r]); err != nil {
			return nil, fmt.Errorf("%w: from replica %d for layer %d: %w", ErrMessage, r, number, err)
		}
	}
	if err := m.note(l, weights, mean); err != nil {
		return nil, fmt.Errorf("layer %d: %w", number, err)
	}
	copy(mean[l.len-copied:], tied)
	if number == 0 {
		m.tied = slices.Clone(mean[:m.cfg.Model.TiedGradLen()])
	}
	if now != nil {
		copy(floats(v.Params), now)
		v.Left = l.left
	}
	m.cfg.Optimizer.Step(m.queue, v)
	if err := m.queue.Sync(); err != nil {
		return nil, err
	}
	return floats(v.Params), nil
}

// Tied returns the mean outer gradient of a tied embedding, for the head, once layer 0 is merged; empty where none is tied.
func (m *Meeting) Tied() []float32 { return m.tied }
