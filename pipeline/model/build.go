package model

import "pnode/kernels"

// builder binds layers to memory. It runs twice: once to measure, once on the buffers.
type builder struct {
	model   resolved
	batch   int
	rows    int  // N = B*T
	split   bool // activation gradients live until backwardWeight: a set for each layer and slot
	storage Storage
	forward bool  // there are no backward passes
	nothing arena // never has memory: for what no pass touches
	logits  int   // rows of logits at a time; 0: default
	mem     *memory
	rotary  rotary
	masked  bool         // each slot has its own starts
	starts  kernels.View // [B,T] int32; absent unless masked, or a window is shorter than the context
	// dropped, droppedHalves are where the layer at hand has what its level drops.
	dropped, droppedHalves *arena
	ahead                  *int            // the slot whose activations are there ahead of its backward pass, -1: none
	residual               [2]kernels.View // [N,C] gradient of the residual stream, in turns, unless split
}

func newBuilder(cfg StackConfig, mem *memory) *builder {
	b := &builder{
		model: cfg.Model.resolved(), batch: cfg.MicroBatch, rows: cfg.MicroBatch * cfg.Model.Context,
		split: cfg.SplitBackward, masked: cfg.masked(), storage: cfg.Storage, logits: cfg.LogitRows, mem: mem, ahead: new(int),
		forward: cfg.ForwardOnly, nothing: arena{dtype: kernels.F32},
	}
	*b.ahead = -1
	b.rotary = newRotary(b.model, &mem.tables, b.model.Context)
	if b.model.slides(b.model.Context) && !b.masked {
		b.starts = mem.ids.take(b.rows)
	}
	if !b.split {
		for i := range b.residual {
			b.residual[i] = b.gradients().take(b.rows * b.model.Channels)
		}
	}
	return b
}

// activations is where a tensor lies that levels from `dropped` on drop: beyond its layer's
// pass it lives only if kept, or computed again ahead of it.
func (b *builder) activations(level, dropped Recompute) *arena {
	if level >= dropped {
		return b.dropped
	}
	return &b.mem.saved
}

// deltas is where activation gradients lie that the weight pass reads.
func (b *builder) deltas() *arena {
	if b.split {
		return b.gradients()
	}
	return b.scratch()
}

// gradients is where activation gradients lie that outlive their layer's pass.
func (b *builder) gradients() *arena {
	if b.forward {
		return &b.nothing
	}
	return &b.mem.deltas
}

// scratch is where the layer at hand has what its backward passes alone need.
func (b *builder) scratch() *arena {
	if b.forward {
		return &b.nothing
	}
	return &b.mem.layer
}

// slot binds a set of activations to the layers of a stack.
func (b *builder) slot(state *State, index int) Slot {
	cfg := state.cfg
	s := Slot{cfg: cfg, index: index, all: b.whole(), restored: b.ahead, noise: &Noise{}}
	s.x, s.dx = b.stream(cfg.First, cfg.End)
	if b.masked {
		b.starts = b.mem.ids.take(b.rows)
	}
	s.starts = b.starts
	b.mem.ahead.rewind()
	b.mem.aheadHalves.rewind()
	for i := range cfg.End - cfg.First {
		before := b.mem.slotBytes()
		b.mem.layer.rewind()
		b.mem.layerHalves.rewind()
		b.dropped, b.droppedHalves = &b.mem.layer, &b.mem.layerHalves
		if cfg.ahead(i) {
			b.dropped, b.droppedHalves = &b.mem.ahead, &b.mem.aheadHalves
		}
		io := boundary{x: s.x[i], y: s.x[i+1], dx: s.dx[i], dy: s.dx[i+1]}
		v := newVectors(b.model, cfg.First+i, state.params[i], state.grads[i])
		if state.copies != nil {
			v.copies = state.copies[i]
		}
		at := place{layer: cfg.First + i, level: cfg.level(i), noise: s.noise, slot: index, ahead: cfg.ahead(i)}
		switch at.layer {
		case 0:
			s.embed = newEmbedding(b, v, io, at)
			s.layers = append(s.layers, s.embed)
		case b.model.Layers() - 1:
			s.head = newHead(b, v, io)
			s.layers = append(s.layers, s.head)
		default:
			s.layers = append(s.layers, newBlock(b, v, io, at))
		}
		s.sizes = append(s.sizes, slotBytes{
			saved: b.mem.slotBytes() - before + 4*int64(s.x[i+1].Len),
			pass:  b.mem.layer.usedBytes() + b.mem.layerHalves.usedBytes(), half: b.mem.layerHalves.usedBytes(),
		})
	}
	return s
}

// stream takes a slot's residual stream and its gradient, [N,C] before each layer and after the
// last. The ends that cross to another stack belong to the slot alone: messages come and go while
// other slots compute.
func (b *builder) stream(first, end int) (x, dx []kernels.View) {
	n, nc := end-first, b.rows*b.model.Channels
	x, dx = make([]kernels.View, n+1), make([]kernels.View, n+1)
	for k := range n + 1 {
		switch at := first + k; {
		case at == 0 || at == b.model.Layers(): // before the embedding, after the head
		case k == 0 || k == n || b.split:
			x[k], dx[k] = b.mem.saved.take(nc), b.gradients().take(nc)
		default:
			x[k], dx[k] = b.mem.saved.take(nc), b.residual[k%2]
		}
	}
	return x, dx
}
