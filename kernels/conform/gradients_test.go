package conform

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"pnode/kernels"
)

// gradient says how a backward op belongs to a forward op, so that finite differences of
// the one can judge the other. Both are the references, in float64; backends are compared
// with these.
type gradient struct {
	forward, backward Case
	dout              int         // operand of backward: the gradient of the forward op's operand 0
	of                map[int]int // output of backward -> the forward op's input it is the gradient of
	from              map[int]int // other input of backward -> operand of forward
}

var gradients = []gradient{
	{
		forward: newCase(kernels.OpMatMul, 3, 4, 5), backward: flagged(newCase(kernels.OpMatMul, 3, 5, 4), kernels.TransB),
		dout: 1, of: map[int]int{0: 1}, from: map[int]int{2: 2},
	},
	{
		forward: newCase(kernels.OpMatMul, 3, 4, 5), backward: flagged(newCase(kernels.OpMatMul, 5, 4, 3), kernels.TransA),
		dout: 2, of: map[int]int{0: 2}, from: map[int]int{1: 1},
	},
	{
		forward: newCase(kernels.OpMatMul, 3, 4, 5), backward: newCase(kernels.OpColumnSum, 3, 4),
		dout: 1, of: map[int]int{0: 3},
	},
	{
		forward: newCase(kernels.OpEmbedForward, 2, 3, 4, 5), backward: newCase(kernels.OpEmbedBackward, 2, 3, 4, 5),
		dout: 2, of: map[int]int{0: 2, 1: 3}, from: map[int]int{3: 1},
	},
	{
		forward: newCase(kernels.OpLayerNormForward, 3, 7), backward: newCase(kernels.OpLayerNormBackwardInput, 3, 7),
		dout: 1, of: map[int]int{0: 3}, from: map[int]int{2: 3, 3: 4, 4: 1, 5: 2},
	},
	{
		forward: newCase(kernels.OpLayerNormForward, 3, 7), backward: newCase(kernels.OpLayerNormBackwardWeight, 3, 7),
		dout: 2, of: map[int]int{0: 4, 1: 5}, from: map[int]int{3: 3, 4: 1, 5: 2},
	},
	{
		forward: newCase(kernels.OpAddLayerNormForward, 3, 7), backward: newCase(kernels.OpLayerNormBackwardInput, 3, 7),
		dout: 1, of: map[int]int{0: 4}, from: map[int]int{2: 1, 3: 6, 4: 2, 5: 3},
	},
	{
		forward: newCase(kernels.OpRMSNormForward, 3, 7), backward: newCase(kernels.OpRMSNormBackwardInput, 3, 7),
		dout: 1, of: map[int]int{0: 2}, from: map[int]int{2: 2, 3: 3, 4: 1},
	},
	{
		forward: newCase(kernels.OpRMSNormForward, 3, 7), backward: newCase(kernels.OpRMSNormBackwardWeight, 3, 7),
		dout: 1, of: map[int]int{0: 3}, from: map[int]int{2: 2, 3: 1},
	},
	{
		forward: newCase(kernels.OpAddRMSNormForward, 3, 7), backward: newCase(kernels.OpRMSNormBackwardInput, 3, 7),
		dout: 1, of: map[int]int{0: 4}, from: map[int]int{2: 1, 3: 5, 4: 2},
	},
	{
		forward: newCase(kernels.OpRoPE, 6, 3, 2, 4, 10, 5), backward: flagged(newCase(kernels.OpRoPE, 6, 3, 2, 4, 10, 5), kernels.Inverse),
		dout: 0, of: map[int]int{0: 0}, from: map[int]int{1: 1, 2: 2},
	},
	{
		forward: newCase(kernels.OpAttentionForward, 2, 9, 4, 2, 5), backward: newCase(kernels.OpAttentionBackward, 2, 9, 4, 2, 5),
		dout: 2, of: map[int]int{0: 2}, from: map[int]int{3: 2, 4: 0, 5: 1, 6: 3},
	},
	{
		forward: newCase(kernels.OpAttentionForwardPart, 2, 9, 4, 2, 5, 3, 4), backward: newCase(kernels.OpAttentionBackwardPart, 2, 9, 4, 2, 5, 3, 4),
		dout: 2, of: map[int]int{0: 2}, from: map[int]int{3: 2, 4: 0, 5: 1, 6: 3},
	},
	{
		forward: newCase(kernels.OpGELUForward, 30), backward: newCase(kernels.OpGELUBackward, 30),
		dout: 1, of: map[int]int{0: 1}, from: map[int]int{2: 1},
	},
	{
		forward: newCase(kernels.OpSwiGLUForward, 3, 7), backward: newCase(kernels.OpSwiGLUBackward, 3, 7),
		dout: 1, of: map[int]int{0: 1}, from: map[int]int{2: 1},
	},
	{
		forward: newCase(kernels.OpDropout, 30), backward: newCase(kernels.OpDropout, 30),
		dout: 1, of: map[int]int{0: 1},
	},
}

func flagged(c Case, flags kernels.Flags) Case {
	c.Call.Flags = flags
	return c
}

// inputs draws the operands of a case; outputs are zero.
func inputs(c Case) [][]float64 {
	rng := rand.New(rand.NewPCG(c.Seed, 5))
	var args [][]float64
	for _, o := range kernels.Info(c.Call.Op).Operands {
		x := make([]float64, o.Count(c.Call))
		if o.Role != kernels.Out {
			fill(rng, x, o, c.Call)
		}
		args = append(args, x)
	}
	if prepare := references[c.Call.Op].prepare; prepare != nil {
		prepare(rng, c.Call, args)
	}
	return args
}

// run computes c on copies of the operands and gives these.
func run(c Case, args [][]float64) [][]float64 {
	fresh := make([][]float64, len(args))
	for k, x := range args {
		fresh[k] = append([]float64(nil), x...)
	}
	references[c.Call.Op].compute(c.Call, fresh)
	return fresh
}

// slope is the derivative of f by *x.
func slope(x *float64, f func() float64) float64 {
	const h = 1e-5
	old := *x
	*x = old + h
	up := f()
	*x = old - h
	down := f()
	*x = old
	return (up - down) / (2 * h)
}

// TestGradients compares each element of each gradient with the central difference of
// sum(out*dout) for random dout.
func TestGradients(t *testing.T) {
	for _, g := range gradients {
		t.Run(g.backward.Call.Op.String(), func(t *testing.T) {
			args := inputs(g.forward)
			after := run(g.forward, args)
			dout := make([]float64, len(after[0]))
			fill(rand.New(rand.NewPCG(6, 7)), dout, kernels.Operand{}, kernels.Call{})

			operands := make([][]float64, len(kernels.Info(g.backward.Call.Op).Operands))
			for k, o := range kernels.Info(g.backward.Call.Op).Operands {
				if !o.Optional || g.isOutput(k) {
					operands[k] = make([]float64, o.Count(g.backward.Call))
				}
			}
			operands[g.dout] = dout
			for k, j := range g.from {
				operands[k] = after[j]
			}
			got := run(g.backward, operands)
			for k, j := range g.of {
				for i := range args[j] {
					want := slope(&args[j][i], func() float64 { return inner(run(g.forward, args)[0], dout) })
					if diff := math.Abs(got[k][i] - want); !(diff <= 1e-8*(1+math.Abs(want))) {
						t.Fatalf("gradient of %s, element %d: %v, finite difference %v", kernels.Info(g.forward.Call.Op).Operands[j].Name, i, got[k][i], want)
					}
				}
			}
		})
	}
}

func (g gradient) isOutput(k int) bool {
	_, ok := g.of[k]
	return ok
}

func inner(x, y []float64) float64 {
	sum := 0.0
	for i := range x {
		sum += x[i] * y[i]
	}
	return sum
}

// TestCrossEntropyGradient differentiates the sum of the losses, of which an ignored row
// is no part.
func TestCrossEntropyGradient(t *testing.T) {
	c := newCase(kernels.OpCrossEntropy, 4, 6)
	c.Call.Scalars[0] = 1
	args := inputs(c)
	args[2][1] = -1
	got := run(c, args)[1]
	for i := range args[1] {
		want := slope(&args[1][i], func() float64 {
			sum := 0.0
			for _, loss := range run(c, args)[0] {
				sum += loss
			}
			return sum
		})
		if math.Abs(got[i]-want) > 1e-8 {
			t.Fatalf("element %d: %v, finite difference %v", i, got[i], want)
		}
	}
}

// TestEveryBackwardOpIsDifferentiated fails when a backward op is added without its check.
func TestEveryBackwardOpIsDifferentiated(t *testing.T) {
	checked := map[kernels.Op]bool{}
	for _, g := range gradients {
		checked[g.backward.Call.Op] = true
	}
	for _, op := range kernels.Ops() {
		if !strings.Contains(op.String(), "backward") {
			continue
		}
		if !checked[op] {
			t.Errorf("%v has no finite-difference check", op)
		}
	}
}

// TestPhilox holds the generator to the known answers that its authors publish
// (Random123, kat_vectors, philox4x32 with 10 rounds).
func TestPhilox(t *testing.T) {
	const ones = 0xffffffff
	for _, k := range []struct {
		counter [4]uint32
		key     [2]uint32
		want    [4]uint32
	}{
		{[4]uint32{}, [2]uint32{}, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{[4]uint32{ones, ones, ones, ones}, [2]uint32{ones, ones}, [4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{
			[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
			[2]uint32{0xa4093822, 0x299f31d0},
			[4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1},
		},
	} {
		if got := philox(k.counter, k.key); got != k.want {
			t.Errorf("philox(%x, %x) is %x, want %x", k.counter, k.key, got, k.want)
		}
	}
}
