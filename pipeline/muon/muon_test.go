package muon

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"pnode/kernels"
	"pnode/kernels/cpu"
)

func newQueue(t testing.TB) (kernels.Device, kernels.Queue) {
	t.Helper()
	d, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	q, err := d.NewQueue()
	if err != nil {
		t.Fatal(err)
	}
	return d, q
}

// newMatrix is a matrix with parameters and gradients by chance.
func newMatrix(t testing.TB, d kernels.Device, rows, cols int, random *rand.Rand) Matrix {
	t.Helper()
	view := func(n int) kernels.View {
		b, err := d.Alloc(kernels.F32, n)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Free)
		return kernels.Whole(b)
	}
	n := rows * cols
	m := Matrix{
		Rows: rows, Cols: cols, Param: view(n), Gradient: view(n), Momentum: view(n), Direction: view(n), Norm: view(1),
		Scratch: view(ScratchLen(rows, cols)),
	}
	for i := range n {
		floats(m.Param)[i], floats(m.Gradient)[i] = float32(random.NormFloat64()), float32(random.NormFloat64())
	}
	return m
}

// floats returns the elements of a view of the processor, as they are.
func floats(v kernels.View) []float32 { return v.Buf.(kernels.HostVisible).Floats(v.Off, v.Len) }

func (m Matrix) update(t testing.TB, q kernels.Queue, scale, mu float32, rate, decay float64) {
	t.Helper()
	m.Accumulate(q, scale, mu)
	if err := q.Sync(); err != nil {
		t.Fatal(err)
	}
	m.Orthogonalize(q, floats(m.Norm)[0])
	m.Apply(q, rate, decay)
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
			poly[i] = b*gram[i] + c*poly[i]
		}
		for i, y := range times(poly, x, r, r, k) {
			x[i] = a*x[i] + y
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
	d, q := newQueue(t)
	random := rand.New(rand.NewPCG(1, 1))
	for _, shape := range [][2]int{{1, 1}, {1, 7}, {7, 1}, {8, 8}, {16, 48}, {48, 16}, {33, 65}, {4, 64}} {
		t.Run(fmt.Sprint(shape), func(t *testing.T) {
			m := newMatrix(t, d, shape[0], shape[1], random)
			param, momentum := widened(floats(m.Param), 1), widened(floats(m.Momentum), 1)
			for range 3 {
				for i := range floats(m.Gradient) {
					floats(m.Gradient)[i] = float32(random.NormFloat64())
				}
				gradient := widened(floats(m.Gradient), 0.5)
				param, momentum = plain(shape[0], shape[1], param, gradient, momentum, 0.95, 0.02, 0.1)
				m.update(t, q, 0.5, 0.95, 0.02, 0.1)
				for i, want := range param {
					if got := float64(floats(m.Param)[i]); math.Abs(got-want) > 2e-4 {
						t.Fatalf("element %d is %v, want %v", i, got, want)
					}
					if got := float64(floats(m.Momentum)[i]); math.Abs(got-momentum[i]) > 1e-5 {
						t.Fatalf("momentum %d is %v, want %v", i, got, momentum[i])
					}
					if floats(m.Direction)[i] != 0 {
						t.Fatalf("direction %d is %v after the update", i, floats(m.Direction)[i])
					}
				}
			}
		})
	}
}

// TestUpdateHasTheSizeOfAdamWs: the root of the mean square of an update is near 0.2 times the rate, whatever the shape.
func TestUpdateHasTheSizeOfAdamWs(t *testing.T) {
	d, q := newQueue(t)
	random := rand.New(rand.NewPCG(2, 1))
	for _, shape := range [][2]int{{64, 64}, {64, 256}, {256, 64}} {
		m := newMatrix(t, d, shape[0], shape[1], random)
		before := widened(floats(m.Param), 1)
		m.update(t, q, 1, 0.95, 1, 0)
		squares := 0.0
		for i, was := range before {
			change := float64(floats(m.Param)[i]) - was
			squares += change * change
		}
		if rms := math.Sqrt(squares / float64(len(before))); rms < 0.14 || rms > 0.23 {
			t.Errorf("%v: the update's root mean square is %v", shape, rms)
		}
	}
}

// TestNoGradient: what has never had a gradient stays as it is, but for decay.
func TestNoGradient(t *testing.T) {
	d, q := newQueue(t)
	m := newMatrix(t, d, 4, 6, rand.New(rand.NewPCG(3, 1)))
	clear(floats(m.Gradient))
	before := widened(floats(m.Param), 1)
	m.update(t, q, 1, 0.95, 0.5, 0)
	for i, was := range before {
		if got := float64(floats(m.Param)[i]); got != was {
			t.Errorf("element %d was %v, is %v", i, was, got)
		}
	}
}
