package model

import "fmt"

// Tensor is one parameter tensor and its place in its layer's flat vector.
type Tensor struct {
	Name  string // GPT-2's names: `wte.weight`, `h.0.attn.c_attn.weight`
	Shape []int  // row-major; linear weights are [out,in]
	Off   int    // first element in the layer's flat vector
	Decay bool   // weight decay applies: matrices only
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
// gaps. The embedding starts with wte; the head ends with its tied copy.
func (c Config) LayerTensors(layer int) []Tensor {
	C := c.Channels
	var l tensorList
	switch {
	case layer == 0:
		l.matrix("wte.weight", c.Vocab, C)
		l.matrix("wpe.weight", c.Context, C)
	case layer == c.Layers()-1:
		l.norm("ln_f", C)
		l.matrix("wte.weight", c.Vocab, C)
	case layer > 0 && layer < c.Layers()-1:
		h := fmt.Sprintf("h.%d.", layer-1)
		l.norm(h+"ln_1", C)
		l.linear(h+"attn.c_attn", 3*C, C)
		l.linear(h+"attn.c_proj", C, C)
		l.norm(h+"ln_2", C)
		l.linear(h+"mlp.c_fc", 4*C, C)
		l.linear(h+"mlp.c_proj", C, 4*C)
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

// TiedLen is the number of elements of the tied embedding [V,C]: the front of the
// embedding's vector and the tail of the head's.
func (c Config) TiedLen() int { return c.Vocab * c.Channels }

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
	tensors []Tensor
	used    int
}

func (l *tensorList) add(t Tensor) {
	t.Off = l.used
	l.used += t.Len()
	l.tensors = append(l.tensors, t)
}

func (l *tensorList) matrix(name string, rows, cols int) {
	l.add(Tensor{Name: name, Shape: []int{rows, cols}, Decay: true})
}

func (l *tensorList) linear(name string, out, in int) {
	l.matrix(name+".weight", out, in)
	l.add(Tensor{Name: name + ".bias", Shape: []int{out}})
}

func (l *tensorList) norm(name string, c int) {
	l.add(Tensor{Name: name + ".weight", Shape: []int{c}})
	l.add(Tensor{Name: name + ".bias", Shape: []int{c}})
}
