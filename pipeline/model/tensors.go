package model

import (
	"fmt"
	"strings"
)

// Tensor is one parameter tensor and its place in its layer's flat vector.
type Tensor struct {
	// Name is the Hugging Face checkpoints' without `transformer.` or `model.`:
	// `h.0.attn.c_attn.weight`, `layers.0.self_attn.q_proj.weight`.
	Name  string
	Shape []int // row-major; linear weights are [out,in]
	Off   int   // first element in the layer's flat vector
	Decay bool  // weight decay applies: matrices only
	// Residual marks the two matrices of a block that write to the residual stream.
	Residual bool
	// Frozen tensors are not trained: they have neither gradient nor optimizer state.
	Frozen bool
}

// Len is the number of elements.
func (t Tensor) Len() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// LayerTensors lists the parameters of a layer in the order of its flat vector, without
// gaps: the base model's first, then the adapters' if there are any, so that the frozen
// ones come before those that are trained. The embedding starts with the token matrix; the
// head's own tensors end with its matrix, the tied copy of the embedding's or its own. Query, key and value lie one behind the other,
// weights first, so that they are one matrix [(H+2K)*D,C] and one bias; so do gate and up,
// [2F,C].
func (c Config) LayerTensors(layer int) []Tensor {
	m := c.resolved()
	l := tensorList{norms: m.Norm, frozen: c.LoRA.On()}
	n := m.names()
	switch {
	case layer == 0:
		l.matrix(n.embed, c.Vocab, c.Channels)
		if m.Positions == Learned {
			l.matrix(n.positions, c.Context, c.Channels)
		}
	case layer == c.Layers()-1:
		l.norm(n.finalNorm, c.Channels)
		if c.Tied() {
			l.matrix(n.embed, c.Vocab, c.Channels)
			break
		}
		l.matrix(n.head, c.Vocab, c.Channels)
		l.adapters(c.LoRA)
	case layer > 0 && layer < c.Layers()-1:
		l.attention(m, layer-1)
		l.mlp(m, layer-1)
		l.adapters(c.LoRA)
	default:
		panic(fmt.Sprintf("model: layer %d of %d", layer, c.Layers()))
	}
	return l.tensors
}

// LayerLen is the number of elements of a layer's flat vector.
func (c Config) LayerLen(layer int) int {
	t := c.LayerTensors(layer)
	last := t[len(t)-1]
	return last.Off + last.Len()
}

// FrozenLen is how many elements at the front of a layer's flat vector are not trained:
// gradients and optimizer state begin behind them. 0 without adapters.
func (c Config) FrozenLen(layer int) int {
	if !c.LoRA.On() {
		return 0
	}
	return c.Base().LayerLen(layer)
}

// TrainedLen is the number of the elements that are trained.
func (c Config) TrainedLen(layer int) int { return c.LayerLen(layer) - c.FrozenLen(layer) }

// TiedLen is the number of elements of the tied embedding [V,C]: the front of the
// embedding's vector and the tail of the head's; 0 for an untied head.
func (c Config) TiedLen() int {
	if !c.Tied() {
		return 0
	}
	return c.Vocab * c.Channels
}

// TiedGradLen is the number of elements of the tied embedding's gradient, which each of
// its two ends has: 0 where it is not tied or not trained.
func (c Config) TiedGradLen() int {
	if c.LoRA.On() {
		return 0
	}
	return c.TiedLen()
}

// Params counts the parameters, the tied embedding once.
func (c Config) Params() int64 {
	n := int64(-c.TiedLen())
	for layer := range c.Layers() {
		n += int64(c.LayerLen(layer))
	}
	return n
}

// tensorList places tensors one after the other.
type tensorList struct {
	norms   Norm
	frozen  bool
	tensors []Tensor
	used    int
}

func (l *tensorList) attention(c resolved, block int) {
	n, h := c.names(), c.names().blockPrefix(block)
	widths := []int{c.qkvWidth()}
	if len(n.qkv) == 3 {
		kv := c.KVHeads * c.HeadDim
		widths = []int{c.queryWidth(), kv, kv}
	}
	l.norm(h+n.attentionNorm, c.Channels)
	for i, name := range n.qkv {
		l.matrix(h+name, widths[i], c.Channels)
	}
	if !c.NoQKVBias {
		for i, name := range n.qkv {
			l.bias(h+name, widths[i])
		}
	}
	l.residual(h+n.output, c.Channels, c.queryWidth())
	if !c.NoOutputBias {
		l.bias(h+n.output, c.Channels)
	}
}

func (l *tensorList) mlp(c resolved, block int) {
	n, h := c.names(), c.names().blockPrefix(block)
	in := []string{n.up}
	if c.Activation == SwiGLU {
		in = []string{n.gate, n.up}
	}
	l.norm(h+n.mlpNorm, c.Channels)
	for _, name := range in {
		l.matrix(h+name, c.MLP, c.Channels)
	}
	if !c.NoMLPBias {
		for _, name := range in {
			l.bias(h+name, c.MLP)
		}
	}
	l.residual(h+n.down, c.Channels, c.MLP)
	if !c.NoMLPBias {
		l.bias(h+n.down, c.Channels)
	}
}

// adapters come behind all tensors of the layer, in their order.
func (l *tensorList) adapters(c LoRA) {
	l.frozen = false
	for _, t := range l.tensors {
		module, ok := strings.CutSuffix(t.Name, ".weight")
		if !ok || len(t.Shape) != 2 || !c.adapts(module) {
			continue
		}
		l.add(Tensor{Name: module + loraA, Shape: []int{c.Rank, t.Shape[1]}, Decay: true})
		l.add(Tensor{Name: module + loraB, Shape: []int{t.Shape[0], c.Rank}, Decay: true})
	}
}

func (l *tensorList) add(t Tensor) {
	t.Off, t.Frozen = l.used, l.frozen
	l.used += t.Len()
	l.tensors = append(l.tensors, t)
}

func (l *tensorList) matrix(name string, rows, cols int) {
	l.add(Tensor{Name: name + ".weight", Shape: []int{rows, cols}, Decay: true})
}

func (l *tensorList) residual(name string, rows, cols int) {
	l.add(Tensor{Name: name + ".weight", Shape: []int{rows, cols}, Decay: true, Residual: true})
}

func (l *tensorList) bias(name string, n int) {
	l.add(Tensor{Name: name + ".bias", Shape: []int{n}})
}

func (l *tensorList) norm(name string, c int) {
	l.add(Tensor{Name: name + ".weight", Shape: []int{c}})
	if l.norms == LayerNorm {
		l.bias(name, c)
	}
}
