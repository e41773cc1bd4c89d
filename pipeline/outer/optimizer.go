package outer

import (
	"errors"
	"fmt"

	"pnode/kernels"
	"pnode/planner/plan"
)

// ErrSetting is wrapped by errors about settings out of bounds.
var ErrSetting = errors.New("outer: setting out of bounds")

// Optimizer is SGD with Nesterov momentum (Sutskever et al. 2013, "On the importance of initialization and
// momentum in deep learning", section 2) over the means of outer gradients.
type Optimizer struct {
	LR, Momentum float32
	// Alpha is the share of a replica's own parameters in what it goes on with: 0 takes the reference, 1 keeps
	// its own. Inner steps between a fragment's leaving and its merge count only with that share, unless Vectors.Left keeps them.
	Alpha float32
}

// Validate returns an error that names a setting out of bounds.
func (o Optimizer) Validate() error {
	switch {
	case !(o.LR > 0 && o.LR <= plan.MaxOuterLR):
		return fmt.Errorf("%w: outer learning rate %v, want above 0 and at most %v", ErrSetting, o.LR, plan.MaxOuterLR)
	case !(o.Momentum >= 0 && o.Momentum < 1):
		return fmt.Errorf("%w: outer momentum %v, want 0 or more and below 1", ErrSetting, o.Momentum)
	case !(o.Alpha >= 0 && o.Alpha <= 1):
		return fmt.Errorf("%w: share alpha %v of own parameters, want 0 to 1", ErrSetting, o.Alpha)
	}
	return nil
}

// Vectors are float32 views of equal length: a stretch of parameters and what its outer steps need.
type Vectors struct {
	Params, Reference kernels.View
	// Momentum is mu*u where u is the sum that Nesterov's momentum keeps: scaled for the next step, so that a step
	// needs no memory of its own. Absent where the optimizer has no momentum.
	Momentum kernels.View
	// Gradient has d after Vectors.Subtract, and is what Optimizer.Step takes D from and then overwrites.
	Gradient kernels.View
	// Left has the parameters as they were at Vectors.Subtract, so that inner steps until the merge are kept whole, and each is in
	// exactly one outer gradient. Absent: they count by Optimizer.Alpha, as in arXiv 2501.18512, algorithm 2.
	Left kernels.View
}

// Slice returns n elements of all vectors from element off on.
func (v Vectors) Slice(off, n int) Vectors {
	s := Vectors{Params: v.Params.Slice(off, n), Reference: v.Reference.Slice(off, n), Gradient: v.Gradient.Slice(off, n)}
	if v.Momentum.Present() {
		s.Momentum = v.Momentum.Slice(off, n)
	}
	if v.Left.Present() {
		s.Left = v.Left.Slice(off, n)
	}
	return s
}

// Subtract enqueues d = reference - parameters: what a replica has learned since the last outer step.
func (v Vectors) Subtract(q kernels.Queue) {
	n := v.Gradient.Len
	if v.Left.Present() {
		q.Do(kernels.Copy(v.Left, v.Params, n))
	}
	q.Do(kernels.Copy(v.Gradient, v.Params, n))
	q.Do(kernels.Scale(v.Gradient, n, -1))
	q.Do(kernels.Add(v.Gradient, v.Reference, v.Gradient, n))
}

// Return enqueues parameters = reference: what a replica goes on with whose inner steps are left out.
func (v Vectors) Return(q kernels.Queue) { q.Do(kernels.Copy(v.Params, v.Reference, v.Params.Len)) }

// Step enqueues an outer step with the mean D in v.Gradient: u = mu u + D, reference -= lr (D + mu u),
// parameters = alpha parameters + (1 - alpha) reference, or reference + (parameters - left).
func (o Optimizer) Step(q kernels.Queue, v Vectors) {
	n := v.Gradient.Len
	if o.Momentum > 0 {
		q.Do(kernels.Add(v.Momentum, v.Momentum, v.Gradient, n)) // u
		q.Do(kernels.Scale(v.Momentum, n, o.Momentum))
		q.Do(kernels.Add(v.Gradient, v.Gradient, v.Momentum, n))
	}
	q.Do(kernels.Scale(v.Gradient, n, -o.LR))
	q.Do(kernels.Add(v.Reference, v.Reference, v.Gradient, n))
	switch {
	case v.Left.Present():
		q.Do(kernels.Scale(v.Left, n, -1))
		q.Do(kernels.Add(v.Params, v.Params, v.Left, n))
		q.Do(kernels.Add(v.Params, v.Params, v.Reference, n))
	case o.Alpha == 0:
		v.Return(q)
	case o.Alpha < 1: // at 1 it keeps its own
		q.Do(kernels.Copy(v.Gradient, v.Reference, n))
		q.Do(kernels.Scale(v.Gradient, n, 1-o.Alpha))
		q.Do(kernels.Scale(v.Params, n, o.Alpha))
		q.Do(kernels.Add(v.Params, v.Params, v.Gradient, n))
	}
}

// Weights returns each replica's share of the tokens that all of them trained on. A replica without any, or with
// a negative number of them, is left out; without a token at all, everyone is.
func Weights(tokens []int64) []float32 {
	all, weights := int64(0), make([]float32, len(tokens))
	for _, n := range tokens {
		all += max(0, n)
	}
	for r, n := range tokens {
		if n > 0 {
			weights[r] = float32(float64(n) / float64(all))
		}
	}
	return weights
}
