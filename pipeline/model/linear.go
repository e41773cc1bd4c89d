package model

import (
	"slices"
	"strings"

	"pnode/kernels"
)

// vectors are a layer's parameters and gradients, taken tensor by tensor in order.
type vectors struct {
	params, grads kernels.View  // grads has the trained tensors only, or is absent
	copies        kernels.View  // copies of params in halves; absent with F32 storage
	apart         bool          // params has the tensors alone that products do not read
	int8          *int8Matrices // in place of copies; nil where there are none
	model         resolved
	all           []Tensor // of the layer
	tensors       []Tensor // of the layer, from the next one on
}

func newVectors(m resolved, layer int, params, grads kernels.View) vectors {
	tensors := m.LayerTensors(layer)
	return vectors{params: params, grads: grads, model: m, all: tensors, tensors: tensors}
}

// next gives the views of the next tensor and of its gradient.
func (v *vectors) next() (param, grad kernels.View) { return v.nextOf(1) }

// nextOf gives the views of the next n tensors, which lie one behind the other, as one.
func (v *vectors) nextOf(n int) (param, grad kernels.View) {
	off, end := v.tensors[0].Off, v.tensors[n-1].Off+v.tensors[n-1].Len()
	v.tensors = v.tensors[n:]
	return v.of(off, end-off)
}

// of gives the views of n elements and of their gradient, absent where they are frozen.
func (v *vectors) of(off, n int) (param, grad kernels.View) {
	if v.apart {
		return v.params.Slice(v.model.restBefore(v.all, off), n), kernels.View{}
	}
	if frozen := v.params.Len - v.grads.Len; off >= frozen {
		grad = v.grads.Slice(off-frozen, n)
	}
	return v.params.Slice(off, n), grad
}

// nextFactor is nextOf for a matrix that products read.
func (v *vectors) nextFactor(n int) (param, grad kernels.View) {
	off := v.tensors[0].Off
	if v.apart {
		end, cols := v.tensors[n-1].Off+v.tensors[n-1].Len(), v.tensors[0].Shape[1]
		v.tensors = v.tensors[n:]
		if v.int8 != nil {
			return v.int8.take(int8Matrix{off: off, rows: (end - off) / cols, cols: cols}), kernels.View{}
		}
		return v.copies.Slice(off, end-off), kernels.View{}
	}
	param, grad = v.nextOf(n)
	return v.factor(off, param.Len), grad
}

// factor gives the view of n elements that products read.
func (v *vectors) factor(off, n int) kernels.View {
	if v.copies.Len > 0 {
		return v.copies.Slice(off, n)
	}
	return v.params.Slice(off, n)
}

// linear is y[N,out] = x[N,in] * weight' + bias.
type linear struct {
	weight, dweight kernels.View // [out,in]; the gradient is absent where it is frozen
	bias, dbias     kernels.View // [out]; may be absent
	out, in         int
	int8            bool     // weight has words of int8
	rounding        rounding // of gradients of y
	adapters        []adapter
}

// linearShape is a linear layer whose weight is made of parts tensors, stacked by rows.
type linearShape struct {
	out, in, parts int
	bias           bool
}

func (v *vectors) linear(s linearShape) linear {
	l := linear{out: s.out, in: s.in, int8: v.int8 != nil}
	first := 0
	for _, t := range v.tensors[:s.parts] {
		module, lora := strings.TrimSuffix(t.Name, ".weight"), v.model.LoRA
		a, hasA := tensorNamed(v.all, module+loraA)
		b, hasB := tensorNamed(v.all, module+loraB)
		if hasA && hasB {
			k := adapter{first: first, rank: lora.Rank, scale: float32(lora.scale()), whole: s.out, in: s.in}
			k.a, k.da = v.of(a.Off, a.Len())
			k.factor = v.factor(a.Off, a.Len())
			k.b, k.db = v.of(b.Off, b.Len())
			l.adapters = append(l.adapters, k)
		}
		first += t.Shape[0]
	}
	l.weight, l.dweight = v.nextFactor(s.parts)
	if s.bias {
		l.bias, l.dbias = v.nextOf(s.parts)
	}
	return l
}

// attentionLinears are the two of a block's attention: into queries, keys and values, and
// out of the heads.
func (v *vectors) attentionLinears() (qkv, output linear) {
	m := v.model
	qkv = v.linear(linearShape{out: m.qkvWidth(), in: m.Channels, parts: len(m.names().qkv), bias: !m.NoQKVBias})
	output = v.linear(linearShape{out: m.Channels, in: m.queryWidth(), parts: 1, bias: !m.NoOutputBias})
	return qkv, output
}

// mlpLinears are the two of a block's MLP; up is gate and up in one with SwiGLU.
func (v *vectors) mlpLinears() (up, down linear) {
	m, parts := v.model, 1
	if m.Activation == SwiGLU {
		parts = 2
	}
	up = v.linear(linearShape{out: m.upWidth(), in: m.Channels, parts: parts, bias: !m.NoMLPBias})
	down = v.linear(linearShape{out: m.Channels, in: m.MLP, parts: 1, bias: !m.NoMLPBias})
	return up, down
}

// take gives the layer the room that its products need, and its adapters their buffers.
func (l *linear) take(b *builder, at place) {
	l.rounding = at.desk.gradient
	for i := range l.adapters {
		l.adapters[i].take(b, at.level)
	}
}

// from is the layer for passes over rows from the given one on: those of an adapter keep
// what the weight pass reads of each row.
func (l linear) from(row int) linear {
	l.adapters = slices.Clone(l.adapters)
	for i, a := range l.adapters {
		l.adapters[i].kept = a.kept.Slice(row*a.rank, a.kept.Len-row*a.rank)
		l.adapters[i].gradient = a.gradient.Slice(row*a.rank, a.gradient.Len-row*a.rank)
	}
	return l
}

func (l linear) forward(q issuer, y, x kernels.View, n int) {
	if l.int8 {
		q.Do(kernels.MatMulInt8(y, x, l.weight, l.bias, n, l.out, l.in))
	} else {
		q.Do(kernels.MatMul(y, x, l.weight, l.bias, n, l.out, l.in, kernels.TransB))
	}
	for _, a := range l.adapters {
		a.forward(q, y, x, n)
	}
}

// restore computes again what the weight pass reads of a forward pass, beside x.
func (l linear) restore(q issuer, x kernels.View, n int) {
	for _, a := range l.adapters {
		a.reduce(q, x, n)
	}
}

// backwardInput overwrites dx[N,in] with dy[N,out] * weight.
func (l linear) backwardInput(q issuer, dx, dy kernels.View, n int) {
	q.Do(kernels.MatMul(dx, l.rounding.of(q, dy), l.weight, kernels.View{}, n, l.in, l.out, 0))
	for _, a := range l.adapters {
		a.backwardInput(q, dx, dy, n)
	}
}

// backwardWeight adds dy' * x to dweight and the column sums of dy to dbias.
func (l linear) backwardWeight(q issuer, dy, x kernels.View, n int) {
	if l.dweight.Len > 0 { // not Present: Costs issues calls before there is memory
		q.Do(kernels.MatMul(l.dweight, l.rounding.of(q, dy), x, kernels.View{}, l.out, l.in, n, kernels.TransA|kernels.Accumulate))
	}
	if l.dbias.Len > 0 {
		q.Do(kernels.ColumnSum(l.dbias, dy, n, l.out, kernels.Accumulate))
	}
	for _, a := range l.adapters {
		a.backwardWeight(q, dy, x, n)
	}
}
