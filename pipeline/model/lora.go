package model

import (
	"slices"
	"strings"
)

// LoRA trains low-rank adapters of chosen linear layers and nothing else (Hu et al. 2021,
// section 4.1): y = x W' + Alpha/Rank * (x A') B'. The zero value is none.
type LoRA struct {
	Rank  int     `json:"rank,omitzero"`
	Alpha float64 `json:"alpha,omitzero"`
	// Targets are the ends of the names of the adapted linear layers, separated by commas:
	// `q_proj,v_proj`, `c_attn`, `mlp.c_proj`, `layers.0.self_attn.q_proj`, and `lm_head` of
	// an untied head. GPT-2's `c_proj` names two in each block.
	Targets string `json:"targets,omitzero"`
}

// On reports whether there are adapters.
func (l LoRA) On() bool { return l.Rank > 0 }

// scale is the factor of an adapter's output.
func (l LoRA) scale() float64 { return l.Alpha / float64(l.Rank) }

// adapts reports whether the linear layer of that full name is a target.
func (l LoRA) adapts(module string) bool {
	return l.On() && slices.ContainsFunc(l.targets(), func(target string) bool { return endsIn(module, target) })
}

func (l LoRA) targets() []string { return strings.Split(l.Targets, ",") }

// endsIn reports whether the last parts of a linear layer's name are the target's.
func endsIn(module, target string) bool { return strings.HasSuffix("."+module, "."+target) }

// Names of an adapter's two matrices after the linear layer's, as in PEFT's files.
const (
	loraA = ".lora_A.weight" // [Rank,in]
	loraB = ".lora_B.weight" // [out,Rank]
)

const (
	maxRank  = 1 << 12
	maxAlpha = 1e6
)

func (v validation) adapters() error {
	l := v.LoRA
	if !l.On() {
		if l != (LoRA{}) {
			return bad("lora_rank is %d: take a value from 1 to %d, or leave adapters out", l.Rank, maxRank)
		}
		return nil
	}
	if err := checkAll(nil, bounds[int]{"lora_rank", l.Rank, 1, maxRank}); err != nil {
		return err
	}
	if err := checkAll(nil, bounds[float64]{"lora_alpha", l.Alpha, 1e-6, maxAlpha}); err != nil {
		return err
	}
	m := v.resolved()
	for _, target := range l.targets() {
		if !slices.ContainsFunc(m.linears(), func(module string) bool { return endsIn(module, target) }) {
			names := m.linears()
			for i, name := range names {
				names[i] = name[strings.LastIndexByte(name, '.')+1:]
			}
			slices.Sort(names)
			return bad("lora_targets has %q: take names of %s", target, strings.Join(slices.Compact(names), ", "))
		}
	}
	return nil
}

// linears returns the names of all linear layers. A tied head is none: it is the embedding.
func (m resolved) linears() []string {
	n := m.names()
	each := append(slices.Clone(n.qkv), n.output, n.up, n.down)
	if m.Activation == SwiGLU {
		each = append(each, n.gate)
	}
	var all []string
	for block := range m.Blocks {
		for _, name := range each {
			all = append(all, n.blockPrefix(block)+name)
		}
	}
	if !m.Tied() {
		all = append(all, n.head)
	}
	return all
}

// Merge gives a layer's vector of the base model with the adapters worked into the linear
// weights; params is the layer's own [LayerLen]. Sums are made in float64 and rounded once.
func (c Config) Merge(layer int, params []float32) []float32 {
	merged := slices.Clone(params[:c.Base().LayerLen(layer)])
	tensors := c.LayerTensors(layer)
	for _, w := range tensors {
		module, ok := strings.CutSuffix(w.Name, ".weight")
		a, hasA := tensorNamed(tensors, module+loraA)
		b, hasB := tensorNamed(tensors, module+loraB)
		if ok && hasA && hasB {
			mergeMatrix(w.of(merged), a.of(params), b.of(params), c.LoRA)
		}
	}
	return merged
}

// mergeMatrix adds scale * b a to w [out,in].
func mergeMatrix(w, a, b []float32, l LoRA) {
	in := len(a) / l.Rank
	for i := range w {
		row, col, sum := i/in, i%in, 0.0
		for k := range l.Rank {
			sum += float64(b[row*l.Rank+k]) * float64(a[k*in+col])
		}
		w[i] = float32(float64(w[i]) + float64(l.scale()*sum))
	}
}

func tensorNamed(tensors []Tensor, name string) (Tensor, bool) {
	i := slices.IndexFunc(tensors, func(t Tensor) bool { return t.Name == name })
	if i < 0 {
		return Tensor{}, false
	}
	return tensors[i], true
}

// of is the tensor's part of its layer's vector.
func (t Tensor) of(params []float32) []float32 { return params[t.Off : t.Off+t.Len()] }
