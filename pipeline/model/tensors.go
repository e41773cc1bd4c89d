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
	l := tensorList{listed: true}
	l.layer(c, layer)
	return l.tensors
}

// Matrices lists the trained matrices of a layer that is a block, and none of others: what a hidden layer multiplies by.
// Query, key and value are a matrix each where they are one tensor, too.
func (c Config) Matrices(layer int) (all []Tensor) {
	if layer == 0 || layer == c.Layers()-1 {
		return nil
	}
	m := c.resolved()
	query, value := m.queryWidth(), m.KVHeads*m.HeadDim
	for _, t := range c.LayerTensors(layer) {
		switch {
		case t.Frozen || len(t.Shape) != 2:
		case len(m.names().qkv) == 1 && strings.HasSuffix(t.Name, m.names().qkv[0]+".weight"):
			for _, rows := range []int{query, value, value} {
				part := t
				part.Shape = []int{rows, t.Shape[1]}
				all = append(all, part)
				t.Off += part.Len()
			}
		default:
			all = append(all, t)
		}
	}
	return all
}

// trainedMatrices returns the places of a layer's Matrices in its trained vector [TrainedLen].
func (c Config) trainedMatrices(layer int) (all []Range) {
	frozen := c.FrozenLen(layer)
	for _, m := range c.Matrices(layer) {
		all = append(all, Range{m.Off - frozen, m.Off - frozen + m.Len()})
	}
	return all
}

// LayerLen is the number of elements of a layer's flat vector.
func (c Config) LayerLen(layer int) int {
	l := tensorList{listed: c.LoRA.On()} // adapters are made to the tensors in the list
	l.layer(c, layer)
	return l.used
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
	listed  bool // else tensors are counted alone, which takes no memory
	norms   Norm
	frozen  bool
	block   string // begins the names of a block's tensors
	tensors []Tensor
	used    int
}

func (l *tensorList) layer(c Config, layer int) {
	m := c.resolved()
	l.norms, l.frozen = m.Norm, c.LoRA.On()
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
		if l.listed {
			l.block = n.blockPrefix(layer - 1)
		}
		l.attention(m, n)
		l.mlp(m, n)
		l.adapters(c.LoRA)
	default:
		panic(fmt.Sprintf("model: layer %d of %d", layer, c.Layers()))
	}
}

func (l *tensorList) attention(c resolved, n names) {
	l.norm(n.attentionNorm, c.Channels)
	for i, name := range n.qkv {
		l.matrix(name, c.projectedWidth(i, len(n.qkv)), c.Channels)
	}
	if !c.NoQKVBias {
		for i, name := range n.qkv {
			l.bias(name, c.projectedWidth(i, len(n.qkv)))
		}
	}
	l.residual(n.output, c.Channels, c.queryWidth())
	if !c.NoOutputBias {
		l.bias(n.output, c.Channels)
	}
}

// projectedWidth returns the channels of tensor i of the n that make queries, keys and values: all of them, or those of one
// kind.
func (m resolved) projectedWidth(i, n int) int {
	switch {
	case n == 1:
		return m.qkvWidth()
	case i == 0:
		return m.queryWidth()
	}
	return m.KVHeads * m.HeadDim
}

func (l *tensorList) mlp(c resolved, n names) {
	gated := c.Activation == SwiGLU
	l.norm(n.mlpNorm, c.Channels)
	if gated {
		l.matrix(n.gate, c.MLP, c.Channels)
	}
	l.matrix(n.up, c.MLP, c.Channels)
	if !c.NoMLPBias {
		if gated {
			l.bias(n.gate, c.MLP)
		}
		l.bias(n.up, c.MLP)
	}
	l.residual(n.down, c.Channels, c.MLP)
	if !c.NoMLPBias {
		l.bias(n.down, c.Channels)
	}
}

// adapters come behind all tensors of the layer, in their order.
func (l *tensorList) adapters(c LoRA) {
	l.frozen, l.block = false, ""
	for _, t := range l.tensors {
		module, ok := strings.CutSuffix(t.Name, ".weight")
		if !ok || len(t.Shape) != 2 || !c.adapts(module) {
			continue
		}
		l.add(module, loraA, Tensor{Decay: true}, c.Rank, t.Shape[1])
		l.add(module, loraB, Tensor{Decay: true}, t.Shape[0], c.Rank)
	}
}

// add places a tensor [rows,cols], or [rows] where cols is 0.
func (l *tensorList) add(name, part string, t Tensor, rows, cols int) {
	if l.listed {
		t.Name, t.Shape, t.Off, t.Frozen = l.block+name+part, []int{rows}, l.used, l.frozen
		if cols > 0 {
			t.Shape = append(t.Shape, cols)
		}
		l.tensors = append(l.tensors, t)
	}
	l.used += rows * max(cols, 1)
}

func (l *tensorList) matrix(name string, rows, cols int) {
	l.add(name, ".weight", Tensor{Decay: true}, rows, cols)
}

func (l *tensorList) residual(name string, rows, cols int) {
	l.add(name, ".weight", Tensor{Decay: true, Residual: true}, rows, cols)
}

func (l *tensorList) bias(name string, n int) { l.add(name, ".bias", Tensor{}, n, 0) }

func (l *tensorList) norm(name string, c int) {
	l.add(name, ".weight", Tensor{}, c, 0)
	if l.norms == LayerNorm {
		l.bias(name, c)
	}
}
