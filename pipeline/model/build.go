package model

import "pnode/kernels"

// builder binds layers to memory. It runs twice: once to measure, once on the buffers.
type builder struct {
	model  Config
	batch  int
	rows   int  // N = B*T
	split  bool // activation gradients live until backwardWeight: a set for each layer and slot
	mem    *memory
	shared sharedDeltas
}

// sharedDeltas are activation gradients that no pass needs once its layer is done; the
// layers of all slots share them. Without split that is all but the boundaries' own.
type sharedDeltas struct {
	dattended kernels.View    // [N,C]
	attnDelta kernels.View    // [B,H,T]
	residual  [2]kernels.View // [N,C] gradient of the residual stream, in turns
	block     blockDeltas
	head      kernels.View // [N,C]
}

func newBuilder(cfg StackConfig, mem *memory) *builder {
	b := &builder{
		model: cfg.Model, batch: cfg.MicroBatch, rows: cfg.MicroBatch * cfg.Model.Context,
		split: cfg.SplitBackward, mem: mem,
	}
	nc := b.rows * b.model.Channels
	b.shared.dattended = mem.deltas.take(nc)
	b.shared.attnDelta = mem.deltas.take(b.rows * b.model.Heads)
	if !b.split {
		b.shared.residual = [2]kernels.View{mem.deltas.take(nc), mem.deltas.take(nc)}
		b.shared.block = b.takeBlockDeltas()
		b.shared.head = mem.deltas.take(nc)
	}
	return b
}

func (b *builder) attention() kernels.AttentionShape {
	m := b.model
	return kernels.AttentionShape{B: b.batch, T: m.Context, H: m.Heads, K: m.Heads, D: m.Channels / m.Heads}
}

func (b *builder) takeBlockDeltas() blockDeltas {
	d, nc := &b.mem.deltas, b.rows*b.model.Channels
	return blockDeltas{up: d.take(4 * nc), ln2: d.take(nc), mid: d.take(nc), qkv: d.take(3 * nc), ln1: d.take(nc)}
}

func (b *builder) blockDeltas() blockDeltas {
	if b.split {
		return b.takeBlockDeltas()
	}
	return b.shared.block
}

func (b *builder) headDelta() kernels.View {
	if b.split {
		return b.mem.deltas.take(b.rows * b.model.Channels)
	}
	return b.shared.head
}

// residual is the gradient of the residual stream between two layers of the stack: in
// front of local layer k.
func (b *builder) residual(k int) kernels.View {
	if b.split {
		return b.mem.deltas.take(b.rows * b.model.Channels)
	}
	return b.shared.residual[k%2]
}

// slotState is one micro-batch in flight.
type slotState struct {
	layers []layer
	embed  *embedding     // nil unless the stack starts with the embedding
	head   *head          // nil unless the stack ends with the head
	x, dx  []kernels.View // [N,C] residual stream and gradient in front of local layer k; k = len(layers): behind the last
	saved  []int          // elements each layer keeps from forward to backward
}

// slot binds a set of activations to layers [first,end) with these parameters.
func (b *builder) slot(first, end int, params, grads []kernels.View) slotState {
	s := b.stream(first, end)
	for i := range end - first {
		before := b.mem.saved.used + b.mem.ids.used
		io := boundary{x: s.x[i], y: s.x[i+1], dx: s.dx[i], dy: s.dx[i+1]}
		v := vectors{params: params[i], grads: grads[i], tensors: b.model.LayerTensors(first + i)}
		switch first + i {
		case 0:
			s.embed = newEmbedding(b, v, io)
			s.layers = append(s.layers, s.embed)
		case b.model.Layers() - 1:
			s.head = newHead(b, v, io)
			s.layers = append(s.layers, s.head)
		default:
			s.layers = append(s.layers, newBlock(b, v, io))
		}
		s.saved = append(s.saved, b.mem.saved.used+b.mem.ids.used-before+s.x[i+1].Len)
	}
	return s
}

// stream gives the slot its residual stream. The ends that cross to another stack belong
// to the slot alone, because messages come and go while other slots compute.
func (b *builder) stream(first, end int) slotState {
	n, nc := end-first, b.rows*b.model.Channels
	s := slotState{x: make([]kernels.View, n+1), dx: make([]kernels.View, n+1)}
	for k := range n + 1 {
		switch at := first + k; {
		case at == 0 || at == b.model.Layers(): // before the embedding, behind the head
		case k == 0 || k == n:
			s.x[k], s.dx[k] = b.mem.saved.take(nc), b.mem.deltas.take(nc)
		default:
			s.x[k], s.dx[k] = b.mem.saved.take(nc), b.residual(k)
		}
	}
	return s
}
