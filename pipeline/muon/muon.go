package muon

import (
	"math"

	"pnode/kernels"
)

// Iterations of Newton and Schulz's method bring all singular values near 1, by the polynomial a x + b x^3 + c x^5 of Jordan
// et al. 2024: quickly rather than exactly.
const (
	Iterations = 5

	a, b, c = 3.4445, -4.7750, 2.0315
)

// Matrix is a matrix [Rows,Cols] with what its update needs. Each view but Norm and Scratch has Rows*Cols elements, row-major.
type Matrix struct {
	Rows, Cols int
	// Param is changed by Apply, Gradient by nobody.
	Param, Gradient kernels.View
	// Momentum lasts from step to step. Direction has the update after Accumulate, and zeros after Apply.
	Momentum, Direction kernels.View
	// Norm [1] is the sum of Direction's squares after Accumulate.
	Norm kernels.View
	// Scratch has ScratchLen elements at least, and may serve all matrices of a queue.
	Scratch kernels.View
}

// ScratchLen is how many elements an update of a matrix needs besides its own.
func ScratchLen(rows, cols int) int {
	small := min(rows, cols)
	return rows*cols + 2*small*small
}

// FLOPs counts the operations of an update's products.
func FLOPs(rows, cols int) int64 {
	small, large := int64(min(rows, cols)), int64(max(rows, cols))
	return Iterations * 2 * small * small * (2*large + small)
}

// Accumulate enqueues m = mu m + scale g and direction = scale g + mu m, Nesterov's momentum.
func (m Matrix) Accumulate(q kernels.Queue, scale, mu float32) {
	n := m.Rows * m.Cols
	q.Do(kernels.Copy(m.Direction, m.Gradient, n))
	q.Do(kernels.Scale(m.Direction, n, scale))
	q.Do(kernels.Scale(m.Momentum, n, mu))
	q.Do(kernels.Add(m.Momentum, m.Momentum, m.Direction, n))
	ahead := m.Scratch.Slice(0, n)
	q.Do(kernels.Copy(ahead, m.Momentum, n))
	q.Do(kernels.Scale(ahead, n, mu))
	q.Do(kernels.Add(m.Direction, m.Direction, ahead, n))
	q.Do(kernels.SumSquares(m.Norm, m.Direction, n))
}

// Orthogonalize enqueues the iterations on the direction, whose squares sum up to squares. A direction of zeros stays zero.
func (m Matrix) Orthogonalize(q kernels.Queue, squares float32) {
	n, small := m.Rows*m.Cols, min(m.Rows, m.Cols)
	wide := m.Rows <= m.Cols
	x, product := m.Direction, m.Scratch.Slice(0, n)
	gram, poly := m.Scratch.Slice(n, small*small), m.Scratch.Slice(n+small*small, small*small)
	const least = 1e-7 // of a norm
	q.Do(kernels.Scale(x, n, float32(1/(math.Sqrt(float64(squares))+least))))
	for range Iterations {
		if wide { // X X^T
			q.Do(kernels.MatMul(gram, x, x, kernels.View{}, small, small, m.Cols, kernels.TransB))
		} else { // X^T X
			q.Do(kernels.MatMul(gram, x, x, kernels.View{}, small, small, m.Rows, kernels.TransA))
		}
		q.Do(kernels.MatMul(poly, gram, gram, kernels.View{}, small, small, small, 0))
		q.Do(kernels.Scale(poly, small*small, c))
		q.Do(kernels.Scale(gram, small*small, b))
		q.Do(kernels.Add(poly, poly, gram, small*small))
		if wide {
			q.Do(kernels.MatMul(product, poly, x, kernels.View{}, m.Rows, m.Cols, small, 0))
		} else {
			q.Do(kernels.MatMul(product, x, poly, kernels.View{}, m.Rows, m.Cols, small, 0))
		}
		q.Do(kernels.Scale(x, n, a))
		q.Do(kernels.Add(x, x, product, n))
	}
}

// Apply enqueues param = (1 - rate decay) param - rate step direction, where step is 0.2 times the root of the larger side,
// and clears the direction.
func (m Matrix) Apply(q kernels.Queue, rate, decay float64) {
	n := m.Rows * m.Cols
	if decay != 0 {
		q.Do(kernels.Scale(m.Param, n, float32(1-rate*decay)))
	}
	q.Do(kernels.Scale(m.Direction, n, float32(-rate*0.2*math.Sqrt(float64(max(m.Rows, m.Cols))))))
	q.Do(kernels.Add(m.Param, m.Param, m.Direction, n))
	q.Do(kernels.Fill(m.Direction, n, 0))
}
