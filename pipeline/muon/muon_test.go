package muon

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pnode/kernels"
	"pnode/kernels/cpu/cputest"
)

// newMatrix is a matrix with parameters and gradients by chance.
func newMatrix(t testing.TB, d kernels.Device, rows, cols int, random *rand.Rand) Matrix {
	t.Helper()
	view := func(n int) kernels.View { return cputest.View(t, d, n) }
	n := rows * cols
	m := Matrix{
		Rows: rows, Cols: cols, Param: view(n), Gradient: view(n), Momentum: view(n), Norm: view(1),
		Scratch: view(ScratchLen(rows, cols)),
	}
	for i := range n {
		cputest.Floats(m.Param)[i], cputest.Floats(m.Gradient)[i] = float32(random.NormFloat64()), float32(random.NormFloat64())
	}
	return m
}

func (m Matrix) update(t testing.TB, q kernels.Queue, scale, mu float32, rate, decay float64) {
	t.Helper()
	step := Step{Scale: scale, Momentum: mu, Rate: rate, Decay: decay}
	m.Accumulate(q, step)
	if err := q.Sync(); err != nil {
		t.Fatal(err)
	}
	m.Apply(q, step, cputest.Floats(m.Norm)[0])
	if err := q.Sync(); err != nil {
		t.Fatal(err)
	}
}

// plain is the update in float64, written after the papers: new parameters, new momentum.
func plain(rows, cols int, param, gradient, momentum []float64, mu, rate, decay float64) ([]float64, []float64) {
	times := func(x, y []float64, n, k, m int) []float64 {
		out := make([]float64, n*m)
		for i := range n {
			for j := range m {
				for l := range k {
					out[i*m+j] += x[i*k+l] * y[l*m+j]
				}
			}
		}
		return out
	}
	turned := func(x []float64, n, m int) []float64 {
		out := make([]float64, n*m)
		for i := range n {
			for j := range m {
				out[j*n+i] = x[i*m+j]
			}
		}
		return out
	}
	next, x, norm := make([]float64, rows*cols), make([]float64, rows*cols), 0.0
	for i, g := range gradient {
		next[i] = mu*momentum[i] + g
		x[i] = g + mu*next[i]
		norm += x[i] * x[i]
	}
	for i := range x {
		x[i] /= math.Sqrt(norm) + 1e-7
	}
	r, k := rows, cols
	if rows > cols {
		x, r, k = turned(x, rows, cols), cols, rows
	}
	for range Iterations {
		gram := times(x, turned(x, r, k), r, k, r)
		poly := times(gram, gram, r, r, r)
		for i := range poly {
			poly[i] = cubic*gram[i] + quintic*poly[i]
		}
		for i, y := range times(poly, x, r, r, k) {
			x[i] = linear*x[i] + y
		}
	}
	if rows > cols {
		x = turned(x, r, k)
	}
	out := make([]float64, rows*cols)
	for i := range out {
		out[i] = param[i]*(1-rate*decay) - rate*0.2*math.Sqrt(float64(max(rows, cols)))*x[i]
	}
	return out, next
}

func widened(xs []float32, scale float64) []float64 {
	out := make([]float64, len(xs))
	for i, x := range xs {
		out[i] = float64(x) * scale
	}
	return out
}

// TestUpdate compares three updates of matrices of every shape with those in float64.
func TestUpdate(t *testing.T) {
	d, q := cputest.New(t)
	random := rand.New(rand.NewPCG(1, 1))
	for _, shape := range [][2]int{{1, 1}, {1, 7}, {7, 1}, {8, 8}, {16, 48}, {48, 16}, {33, 65}, {4, 64}} {
		t.Run(fmt.Sprint(shape), func(t *testing.T) {
			m := newMatrix(t, d, shape[0], shape[1], random)
			param, momentum := widened(cputest.Floats(m.Param), 1), widened(cputest.Floats(m.Momentum), 1)
			for range 3 {
				for i := range cputest.Floats(m.Gradient) {
					cputest.Floats(m.Gradient)[i] = float32(random.NormFloat64())
				}
				gradient := widened(cputest.Floats(m.Gradient), 0.5)
				param, momentum = plain(shape[0], shape[1], param, gradient, momentum, 0.95, 0.02, 0.1)
				m.update(t, q, 0.5, 0.95, 0.02, 0.1)
				for i, want := range param {
					if got := float64(cputest.Floats(m.Param)[i]); math.Abs(got-want) > 2e-4 {
						t.Fatalf("element %d is %v, want %v", i, got, want)
					}
					if got := float64(cputest.Floats(m.Momentum)[i]); math.Abs(got-momentum[i]) > 1e-5 {
						t.Fatalf("momentum %d is %v, want %v", i, got, momentum[i])
					}
				}
			}
		})
	}
}

// TestUpdateHasTheSizeOfAdamWs: the root of the mean square of an update is near 0.2 times the rate, whatever the shape.
func TestUpdateHasTheSizeOfAdamWs(t *testing.T) {
	d, q := cputest.New(t)
	random := rand.New(rand.NewPCG(2, 1))
	for _, shape := range [][2]int{{64, 64}, {64, 256}, {256, 64}} {
		m := newMatrix(t, d, shape[0], shape[1], random)
		before := widened(cputest.Floats(m.Param), 1)
		m.update(t, q, 1, 0.95, 1, 0)
		squares := 0.0
		for i, was := range before {
			change := float64(cputest.Floats(m.Param)[i]) - was
			squares += change * change
		}
		if rms := math.Sqrt(squares / float64(len(before))); rms < 0.14 || rms > 0.23 {
			t.Errorf("%v: the update's root mean square is %v", shape, rms)
		}
	}
}

// TestNoGradient: what has never had a gradient stays as it is, but for decay.
func TestNoGradient(t *testing.T) {
	d, q := cputest.New(t)
	m := newMatrix(t, d, 4, 6, rand.New(rand.NewPCG(3, 1)))
	clear(cputest.Floats(m.Gradient))
	before := widened(cputest.Floats(m.Param), 1)
	m.update(t, q, 1, 0.95, 0.5, 0)
	for i, was := range before {
		if got := float64(cputest.Floats(m.Param)[i]); got != was {
			t.Errorf("element %d was %v, is %v", i, was, got)
		}
	}
}

// BenchmarkUpdate updates the matrices of a block of nano by Muon and by AdamW, and makes Muon's products alone, in turns. It adds up
// the least time of each matrix, and shows Muon's beside that of the two others together.
func BenchmarkUpdate(b *testing.B) {
	d, q := cputest.New(b)
	random := rand.New(rand.NewPCG(4, 1))
	const c = 192
	var all []Matrix
	for _, shape := range [][2]int{{c, c}, {c, c}, {c, c}, {c, c}, {4 * c, c}, {c, 4 * c}} {
		all = append(all, newMatrix(b, d, shape[0], shape[1], random))
	}
	second := cputest.View(b, d, 4*c*c)
	updates := []struct {
		name   string
		update func(Matrix)
	}{
		{"muon", func(m Matrix) {
			s := Step{Scale: 1, Momentum: 0.95, Rate: 1e-3, Decay: 0.1}
			m.Accumulate(q, s)
			m.Apply(q, s, 400*float32(m.Rows*m.Cols)) // of a momentum of so many equal gradients that it grows no more
		}},
		{"adamw", func(m Matrix) {
			n := m.Rows * m.Cols
			scalars := kernels.AdamWScalars{LR: 1e-3, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Decay: 0.1, Correction1: 1, Correction2: 1, GradScale: 1}
			q.Do(kernels.AdamW(m.Param, m.Momentum, second.Slice(0, n), m.Gradient, n, scalars))
		}},
		{"products", func(m Matrix) {
			n, small, large, x := m.Rows*m.Cols, min(m.Rows, m.Cols), max(m.Rows, m.Cols), m.Gradient
			square, again, out := m.Scratch.Slice(2*n, small*small), m.Scratch.Slice(2*n+small*small, small*small), m.Scratch.Slice(n, n)
			for range Iterations {
				if m.Rows <= m.Cols {
					q.Do(kernels.MatMul(square, x, x, kernels.View{}, small, small, large, kernels.TransB))
					q.Do(kernels.MatMul(again, square, square, kernels.View{}, small, small, small, 0))
					q.Do(kernels.MatMul(out, again, x, kernels.View{}, small, large, small, 0))
				} else {
					q.Do(kernels.MatMul(square, x, x, kernels.View{}, small, small, large, kernels.TransA))
					q.Do(kernels.MatMul(again, square, square, kernels.View{}, small, small, small, 0))
					q.Do(kernels.MatMul(out, x, again, kernels.View{}, large, small, small, 0))
				}
			}
		}},
	}
	least := make([][]time.Duration, len(updates))
	for i := range least {
		least[i] = slices.Repeat([]time.Duration{math.MaxInt64}, len(all))
	}
	for b.Loop() {
		for k, m := range all {
			for i, u := range updates {
				began := time.Now()
				u.update(m)
				if err := q.Sync(); err != nil {
					b.Fatal(err)
				}
				least[i][k] = min(least[i][k], time.Since(began))
			}
		}
	}
	var took [3]float64
	for i, u := range updates {
		for _, t := range least[i] {
			took[i] += float64(t)
		}
		b.ReportMetric(took[i], u.name+"-ns")
	}
	b.ReportMetric(took[0]/(took[1]+took[2]), "muon/(adamw+products)")
}
