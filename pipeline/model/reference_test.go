package model

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"pnode/kernels"
)

// reference is testdata/reference.json: values of a tiny model from PyTorch 1.13 in
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

func loadReference(t *testing.T) reference {
	t.Helper()
	raw, err := os.ReadFile("testdata/reference.json")
	must(t, err)
	var ref reference
	must(t, json.Unmarshal(raw, &ref))
	if ref.Config != tiny || ref.Batch != tinyBatch || len(ref.Grads) < 20 || len(ref.Train.Losses) < 5 {
		t.Fatal("testdata/reference.json is not what reference.py writes")
	}
	return ref
}

func TestReferenceForwardAndGradients(t *testing.T) {
	ref := loadReference(t)
	r := newRig(t, rigConfig{model: tiny, batch: ref.Batch}).load()
	rows := ref.Batch * tiny.Context
	tokens, _ := referenceMicro(tiny, ref.Batch, 0)
	r.first().SetTokens(r.queue, 0, tokens)
	logits := r.read(r.last().ForwardLogits(r.queue, 0))
	if len(logits) != rows*tiny.Vocab {
		t.Fatalf("%d logits, want %d", len(logits), rows*tiny.Vocab)
	}
	for _, e := range ref.Logits {
		near(t, "logit", float64(logits[e.Index]), e.Value, 2e-5)
	}
	losses := r.forward(0, 0, float32(1/float64(rows)))
	near(t, "loss", sum64(losses)/float64(rows), ref.Loss, 1e-5*ref.Loss)
	r.backward(0, (*Stack).Backward)
	r.tieGrads()
	for _, g := range ref.Grads {
		tensor := tensorNamed(t, tiny, g.Layer, g.Name)
		got := r.read(r.stackOf(g.Layer).Grads(g.Layer).Slice(tensor.Off, tensor.Len()))
		near(t, g.Name+" norm", math.Sqrt(squares(got)), g.Norm, 1e-4*g.Norm)
		rms := g.Norm / math.Sqrt(float64(len(got)))
		for _, e := range g.Elements {
			near(t, g.Name, float64(got[e.Index]), e.Value, 1e-3*math.Max(math.Abs(e.Value), rms))
		}
	}
}

func TestReferenceTraining(t *testing.T) {
	ref := loadReference(t)
	r := newRig(t, rigConfig{model: tiny, batch: ref.Batch}).load()
	rows := ref.Micros * ref.Batch * tiny.Context
	moments := newMoments(r)
	for step, want := range ref.Train.Losses {
		r.zeroGrads()
		total := 0.0
		for micro := range ref.Micros {
			total += sum64(r.forward(0, micro, float32(1/float64(rows))))
			r.backward(0, (*Stack).Backward)
		}
		near(t, "loss", total/float64(rows), want, 1e-5*want)
		r.tieGrads()
		norm := r.gradNorm()
		near(t, "gradient norm", norm, ref.Train.Norms[step], 1e-4*norm)
		moments.update(ref, step+1, math.Min(1, ref.Train.Clip/norm))
	}
}

// gradNorm is the global norm, the tied embedding counted once.
func (r *rig) gradNorm() float64 {
	sum := 0.0
	for l, g := range r.grads() {
		if l == r.model.Layers()-1 {
			g = g[:len(g)-r.model.TiedLen()]
		}
		sum += squares(g)
	}
	return math.Sqrt(sum)
}

// moments are AdamW's first and second moment of each layer.
type moments struct {
	r    *rig
	m, v []kernels.Buffer
}

func newMoments(r *rig) moments {
	o := moments{r: r}
	for l := range r.model.Layers() {
		for _, list := range []*[]kernels.Buffer{&o.m, &o.v} {
			buf, err := r.stackOf(l).cfg.Device.Alloc(kernels.F32, r.model.LayerLen(l))
			must(r.t, err)
			r.t.Cleanup(buf.Free)
			*list = append(*list, buf)
		}
	}
	return o
}

func (o moments) update(ref reference, step int, gradScale float64) {
	h := ref.Train
	s := kernels.AdamWScalars{
		LR: float32(h.LR), Beta1: float32(h.Beta1), Beta2: float32(h.Beta2), Eps: float32(h.Eps),
		Correction1: float32(1 - math.Pow(h.Beta1, float64(step))),
		Correction2: float32(1 - math.Pow(h.Beta2, float64(step))),
		GradScale:   float32(gradScale),
	}
	for l := range o.r.model.Layers() {
		stack := o.r.stackOf(l)
		for _, tensor := range o.r.model.LayerTensors(l) {
			s.Decay = 0
			if tensor.Decay {
				s.Decay = float32(h.Decay)
			}
			cut := func(v kernels.View) kernels.View { return v.Slice(tensor.Off, tensor.Len()) }
			o.r.queue.Do(kernels.AdamW(cut(stack.Params(l)), cut(kernels.Whole(o.m[l])), cut(kernels.Whole(o.v[l])),
				cut(stack.Grads(l)), tensor.Len(), s))
		}
	}
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

func tensorNamed(t *testing.T, c Config, layer int, name string) Tensor {
	t.Helper()
	for _, tensor := range c.LayerTensors(layer) {
		if tensor.Name == name {
			return tensor
		}
	}
	t.Fatalf("layer %d has no tensor %s", layer, name)
	return Tensor{}
}
