package model

import (
	"fmt"
	"math"
	"testing"
)

// TestGradientsAgainstDifferences moves every tensor, each copy of the tied one by
// itself, along random sign directions and compares the change of the loss with the
// gradient's.
func TestGradientsAgainstDifferences(t *testing.T) {
	eachFamily(t, func(t *testing.T, ref reference) { checkGradients(t, ref.Config, Noise{}) })
}

func checkGradients(t *testing.T, c Config, noise Noise) {
	r := newRig(t, rigConfig{model: c, batch: tinyBatch, cuts: []int{1}}).load() // the ends in two stacks
	r.noise = noise
	r.forward(0, 0)
	r.backward(0, 1, (*Slot).Backward)
	grads := r.grads()
	for l := range c.Layers() {
		base := referenceParams(c, l)
		for i, tensor := range c.LayerTensors(l) {
			if tensor.Frozen {
				continue
			}
			t.Run(fmt.Sprintf("%d/%s", l, tensor.Name), func(t *testing.T) {
				for direction := range 3 {
					compareDifference(t, r, probe{layer: l, tensor: tensor, stream: 100*l + 10*i + direction, base: base, grad: grads[l]})
				}
			})
		}
	}
}

// probe is a direction in which one tensor moves.
type probe struct {
	layer      int
	tensor     Tensor
	stream     int
	base, grad []float32 // of the whole layer
}

func (p probe) sign(i int) float64 { return math.Copysign(1, unit(5000+p.stream, i)) }

// compareDifference checks one directional derivative. The loss is the sum over rows:
// float32 losses are good to about 3e-6 in sum, the central difference to O(h^2).
func compareDifference(t *testing.T, r *rig, p probe) {
	t.Helper()
	n := p.tensor.Len()
	h := 0.03 / math.Sqrt(float64(n)) // a step of length 0.03
	want, scale := 0.0, 0.0
	for i := range n {
		g := float64(p.grad[p.tensor.Off-r.model.FrozenLen(p.layer)+i])
		want += g * p.sign(i)
		scale += g * g
	}
	got := (r.lossMoved(p, h) - r.lossMoved(p, -h)) / (2 * h)
	near(t, "directional derivative", got, want, 0.005*math.Sqrt(scale)+0.0005*math.Sqrt(float64(n)))
}

// lossMoved is the summed loss with the probe's tensor moved by h along its signs.
func (r *rig) lossMoved(p probe, h float64) float64 {
	r.t.Helper()
	view := r.stackOf(p.layer).Params(p.layer)
	moved := append([]float32(nil), p.base...)
	for i := range p.tensor.Len() {
		moved[p.tensor.Off+i] += float32(h * p.sign(i))
	}
	r.write(view, moved)
	loss := sum64(r.evaluate(0, 0))
	r.write(view, p.base)
	return loss
}
