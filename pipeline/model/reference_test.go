package model

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"os"
	"slices"
	"testing"

	"pnode/kernels"
)

// reference is a model of testdata/reference.json: its values from PyTorch 1.13 in
// float64, written by testdata/reference.py.
type reference struct {
	Config Config
	Batch  int
	Micros int
	Loss   float64
	Logits []element
	Grads  []struct {
		Layer    int
		Name     string
		Norm     float64
		Elements []element
	}
	Train struct {
		LR, Beta1, Beta2, Eps, Decay, Clip float64
		Losses, Norms                      []float64
	}
}

type element struct {
	Index int
	Value float64
}

// loadReferences gives the models by name.
func loadReferences(t testing.TB) map[string]reference {
	t.Helper()
	raw, err := os.ReadFile("testdata/reference.json")
	must(t, err)
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	var refs map[string]reference
	must(t, d.Decode(&refs))
	if refs["gpt2"].Config != tiny || refs["llama"].Config != tinyLlama || len(refs) < 8 {
		t.Fatal("testdata/reference.json is not what reference.py writes")
	}
	return refs
}

// eachFamily runs f for the models of the references, in the order of their names.
func eachFamily(t *testing.T, f func(t *testing.T, ref reference)) {
	t.Helper()
	refs := loadReferences(t)
	for _, name := range slices.Sorted(maps.Keys(refs)) {
		t.Run(name, func(t *testing.T) { f(t, refs[name]) })
	}
}

func TestReferenceForwardAndGradients(t *testing.T) {
	eachFamily(t, checkReference)
}

func checkReference(t *testing.T, ref reference) {
	c := ref.Config
	r := newRig(t, rigConfig{model: c, batch: ref.Batch}).load()
	rows := ref.Batch * c.Context
	r.forward(0, 0)
	logits := r.logits(0)
	if len(logits) != rows*c.Vocab || len(ref.Logits) < 20 || len(ref.Grads) < 10 {
		t.Fatalf("%d logits, want %d; the reference has %d, and %d gradients", len(logits), rows*c.Vocab, len(ref.Logits), len(ref.Grads))
	}
	for _, e := range ref.Logits {
		near(t, "logit", float64(logits[e.Index]), e.Value, 2e-5)
	}
	losses := r.backward(0, float32(1/float64(rows)), (*Slot).Backward)
	near(t, "loss", sum64(losses)/float64(rows), ref.Loss, 1e-5*ref.Loss)
	r.tieGrads()
	for _, g := range ref.Grads {
		tensor := namedTensor(t, c, g.Layer, g.Name)
		got := r.read(r.stackOf(g.Layer).Grads(g.Layer).Slice(tensor.Off-c.FrozenLen(g.Layer), tensor.Len()))
		near(t, g.Name+" norm", math.Sqrt(squares(got)), g.Norm, 1e-4*g.Norm)
		rms := g.Norm / math.Sqrt(float64(len(got)))
		for _, e := range g.Elements {
			near(t, g.Name, float64(got[e.Index]), e.Value, 1e-3*math.Max(math.Abs(e.Value), rms))
		}
	}
}

func TestReferenceTraining(t *testing.T) {
	t.Parallel()
	eachFamily(t, checkTraining)
}

func checkTraining(t *testing.T, ref reference) {
	for _, cuts := range [][]int{nil, {2}} {
		checkTrainingCut(t, ref, cuts)
	}
}

func checkTrainingCut(t *testing.T, ref reference, cuts []int) {
	r := newRig(t, rigConfig{model: ref.Config, batch: ref.Batch, cuts: cuts}).load()
	if len(ref.Train.Losses) < 20 {
		t.Fatalf("the reference has %d steps", len(ref.Train.Losses))
	}
	for step, want := range ref.Train.Losses {
		loss, norm := r.step(ref, step+1, (*Slot).Backward)
		near(t, "loss", loss, want, 1e-5*want)
		near(t, "gradient norm", norm, ref.Train.Norms[step], 1e-4*norm)
	}
}

// step is training step n, from 1, with its mean loss and the gradient's norm.
func (r *rig) step(ref reference, n int, pass pass) (loss, norm float64) {
	rows := ref.Micros * ref.Batch * ref.Config.Context
	r.zeroGrads()
	for micro := range ref.Micros {
		r.forward(0, micro)
		loss += sum64(r.backward(0, float32(1/float64(rows)), pass))
	}
	r.unscale()
	r.tieGrads()
	norm = r.gradNorm()
	r.update(ref, n, math.Min(1, ref.Train.Clip/norm))
	return loss / float64(rows), norm
}

// gradNorm is the global norm, the tied embedding counted once.
func (r *rig) gradNorm() float64 {
	sum := 0.0
	for l, g := range r.grads() {
		if l == r.model.Layers()-1 {
			g = g[:len(g)-r.model.TiedGradLen()]
		}
		sum += squares(g)
	}
	return math.Sqrt(sum)
}

// update is one step of AdamW.
func (r *rig) update(ref reference, step int, gradScale float64) {
	h := ref.Train
	s := kernels.AdamWScalars{
		LR: float32(h.LR), Beta1: float32(h.Beta1), Beta2: float32(h.Beta2), Eps: float32(h.Eps),
		Correction1: float32(1 - math.Pow(h.Beta1, float64(step))),
		Correction2: float32(1 - math.Pow(h.Beta2, float64(step))),
		GradScale:   float32(gradScale),
	}
	for l := range r.model.Layers() {
		stack := r.stackOf(l)
		for _, tensor := range r.model.LayerTensors(l) {
			if tensor.Frozen || tensor.Off >= r.model.LayerLen(l)-r.sharedTail(l) {
				continue
			}
			s.Decay = 0
			if tensor.Decay {
				s.Decay = float32(h.Decay)
			}
			trained := func(v kernels.View) kernels.View { return v.Slice(tensor.Off-r.model.FrozenLen(l), tensor.Len()) }
			r.queue.Do(kernels.AdamW(stack.Params(l).Slice(tensor.Off, tensor.Len()), trained(stack.Moment(l, 0)), trained(stack.Moment(l, 1)),
				trained(stack.Grads(l)), tensor.Len(), s))
		}
	}
	r.roundWeights()
}

// sharedTail returns how many of a layer's parameters are updated with another layer's.
func (r *rig) sharedTail(layer int) int {
	if layer < r.model.Layers()-1 {
		return 0
	}
	return r.last().SharedTail()
}

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tolerance) {
		t.Errorf("%s is %.9g, want %.9g (off by %.2g, allowed %.2g)", what, got, want, math.Abs(got-want), tolerance)
	}
}

func squares(x []float32) float64 {
	sum := 0.0
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	return sum
}

func namedTensor(t *testing.T, c Config, layer int, name string) Tensor {
	t.Helper()
	for _, tensor := range c.LayerTensors(layer) {
		if tensor.Name == name {
			return tensor
		}
	}
	t.Fatalf("layer %d has no tensor %s", layer, name)
	return Tensor{}
}
