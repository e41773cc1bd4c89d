package muon

import (
	"math"

	"pnode/kernels"
)

// Iterations of Newton and Schulz's method bring all singular values near 1, by the polynomial linear x + cubic x^3 + quintic x^5 of Jordan
// et al. 2024: quickly rather than exactly.
const (
	Iterations = 5

	linear, cubic, quintic = 3.4445, -4.7750, 2.0315
)

// Matrix is a matrix [Rows,Cols] with what its update needs. Param, Gradient and Momentum have Rows*Cols elements, row-major.
type Matrix struct {
	Rows, Cols int
	// Param and Momentum, which lasts from step to step, are changed; Gradient is not.
	Param, Gradient, Momentum kernels.View
	// Norm [1] is the sum of the direction's squares after Accumulate.
	Norm kernels.View
	// Scratch has ScratchLen elements at least, and may serve all matrices of a queue.
	Scratch kernels.View
}

// Step has the numbers of a step: gradients are multiplied by Scale, momentum by Momentum.
type Step struct {
	Scale, Momentum float32
	Rate, Decay     float64
}

// ScratchLen is how many elements an update of a matrix needs besides its own.
func ScratchLen(rows, cols int) int {
	small := min(rows, cols)
	return 2*rows*cols + 2*small*small
}

// FLOPs counts the operations of an update's products.
func FLOPs(rows, cols int) int64 {
	small, large := int64(min(rows, cols)), int64(max(rows, cols))
	return Iterations * 2 * small * small * (2*large + small)
}

// Accumulate enqueues m = mu m + scale g, and the sum of the direction's squares.
func (m Matrix) Accumulate(q kernels.Queue, s Step) {
	n := m.Rows * m.Cols
	q.Do(kernels.Combine(m.Momentum, m.Momentum, m.Gradient, n, s.Momentum, s.Scale))
	q.Do(kernels.SumSquares(m.Norm, m.direct(q, s, 1), n))
}

// direct enqueues the direction, scale g + mu m with the new m, times a factor: Nesterov's momentum. It is made twice, since it would
// take as much memory as the momentum to keep those of all matrices until their norms are known.
func (m Matrix) direct(q kernels.Queue, s Step, factor float32) kernels.View {
	n := m.Rows * m.Cols
	direction := m.Scratch.Slice(0, n)
	q.Do(kernels.Combine(direction, m.Gradient, m.Momentum, n, factor*s.Scale, factor*s.Momentum))
	return direction
}

// Apply enqueues param = (1 - rate decay) param - rate step x after Accumulate, where x is the direction made orthogonal, and step is 0.2
// times the root of the larger side. The direction's squares sum up to squares.
func (m Matrix) Apply(q kernels.Queue, s Step, squares float32) {
	const least = 1e-7 // of a norm
	x := m.direct(q, s, float32(1/(math.Sqrt(float64(squares))+least)))
	x = m.orthogonalize(q, x)
	step := 0.2 * math.Sqrt(float64(max(m.Rows, m.Cols)))
	q.Do(kernels.Combine(m.Param, m.Param, x, m.Rows*m.Cols, float32(1-s.Rate*s.Decay), float32(-s.Rate*step)))
}

// orthogonalize enqueues the iterations on x, the front of the scratch, whose norm is 1, and returns where the result is. Zeros stay zero.
func (m Matrix) orthogonalize(q kernels.Queue, x kernels.View) kernels.View {
	n, small := m.Rows*m.Cols, min(m.Rows, m.Cols)
	wide := m.Rows <= m.Cols
	next := m.Scratch.Slice(n, n)
	gram, poly := m.Scratch.Slice(2*n, small*small), m.Scratch.Slice(2*n+small*small, small*small)
	for range Iterations {
		if wide { // X X^T
			q.Do(kernels.MatMul(gram, x, x, kernels.View{}, small, small, m.Cols, kernels.TransB))
		} else { // X^T X
			q.Do(kernels.MatMul(gram, x, x, kernels.View{}, small, small, m.Rows, kernels.TransA))
		}
		q.Do(kernels.MatMul(poly, gram, gram, kernels.View{}, small, small, small, 0))
		q.Do(kernels.CombineSquare(poly, poly, gram, small, quintic, cubic, linear))
		if wide {
			q.Do(kernels.MatMul(next, poly, x, kernels.View{}, m.Rows, m.Cols, small, 0))
		} else {
			q.Do(kernels.MatMul(next, x, poly, kernels.View{}, m.Rows, m.Cols, small, 0))
		}
		x, next = next, x
	}
	return x
}
