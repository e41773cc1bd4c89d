package model

import (
	"cmp"
	"math"
	"strings"
	"testing"

	"pnode/kernels"
	"pnode/kernels/cpu"
)

// tiny is small enough for finite differences and odd enough to catch swapped sizes.
var tiny = Config{Vocab: 37, Context: 12, Blocks: 2, Heads: 3, Channels: 24}

const tinyBatch = 2

// unit is a number in [-1,1): a 32-bit integer hash of (stream, i), the same as in
// testdata/reference.py.
func unit(stream, i int) float64 {
	x := uint32((i+1)*2654435761 + stream*40503)
	x = (x ^ x>>15) * 2246822519
	x = (x ^ x>>13) * 3266489917
	x ^= x >> 16
	return float64(x)/(1<<31) - 1
}

// referenceParams fills a layer with the closed-form weights of testdata/reference.py;
// stream is the number of the layer's first tensor.
func referenceParams(c Config, layer int) []float32 {
	stream := 0
	for l := range layer {
		stream += len(c.LayerTensors(l))
	}
	dst := make([]float32, c.LayerLen(layer))
	for i, t := range c.LayerTensors(layer) {
		number := stream + i
		if layer == c.Layers()-1 && t.Decay && c.Tied() {
			number = 0 // the tied copy
		}
		for e := range t.Len() {
			u := unit(number, e)
			switch {
			case t.Decay:
				u *= 0.3
			case strings.HasSuffix(t.Name, ".weight"):
				u = 1 + float64(0.2*u)
			default:
				u *= 0.1
			}
			dst[t.Off+e] = float32(u)
		}
	}
	return dst
}

// referenceMicro gives tokens and targets of a micro-batch; each seventh target does not
// count.
func referenceMicro(c Config, batch, micro int) (tokens, targets []int32) {
	for i := range batch * c.Context {
		tokens = append(tokens, int32((unit(1000+micro, i)+1)/2*float64(c.Vocab)))
		target := int32((unit(2000+micro, i) + 1) / 2 * float64(c.Vocab))
		if i%7 == 3 {
			target = -1
		}
		targets = append(targets, target)
	}
	return tokens, targets
}

// rig is a model cut into stacks on the CPU, with one queue.
type rig struct {
	t      testing.TB
	model  Config
	batch  int
	stacks []*Stack
	queue  kernels.Queue
	noise  Noise
}

type rigConfig struct {
	model   Config
	batch   int
	cuts    []int // first layers of the second, third, ... stack
	slots   int
	split   bool
	level   Recompute // of every layer
	rows    int       // of logits at a time
	storage Storage
	stored  []Storage // of each stack; nil: storage
	threads int       // 0: 2
	mask    bool      // attention within documents
	ahead   int       // layers of each stack that are restored ahead
	// segments of a sequence that a stack is made for
	segments int
	// scale is ScaleBits, unscaled stands for 0; 0: those of a step of one micro-batch
	scale int
}

const unscaled = -1

func newRig(t testing.TB, c rigConfig) *rig {
	t.Helper()
	device, err := cpu.New(cpu.Options{Threads: cmp.Or(c.threads, 2)})
	must(t, err)
	queue, err := device.NewQueue()
	must(t, err)
	r := &rig{t: t, model: c.model, batch: c.batch, queue: queue}
	edges := append(append([]int{0}, c.cuts...), c.model.Layers())
	for i := range len(edges) - 1 {
		if c.stored != nil {
			c.storage = c.stored[i]
		}
		s, err := NewStack(StackConfig{
			Device: device, Model: c.model, First: edges[i], End: edges[i+1],
			MicroBatch: c.batch, Slots: max(c.slots, 1), SplitBackward: c.split, Recompute: c.level.Uniform(edges[i+1] - edges[i]),
			Moments: 2, LogitRows: c.rows, Storage: c.storage, DocumentMask: c.mask,
			Ahead: c.ahead, Segments: c.segments,
			ScaleBits: max(0, cmp.Or(c.scale, LossScaleBits(c.batch*c.model.Context))),
		})
		must(t, err)
		r.stacks = append(r.stacks, s)
	}
	t.Cleanup(func() {
		must(t, queue.Close())
		for _, s := range r.stacks {
			s.Close()
		}
		must(t, device.Close())
	})
	return r
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (r *rig) stackOf(layer int) *Stack {
	for _, s := range r.stacks {
		if layer < s.cfg.End {
			return s
		}
	}
	r.t.Fatalf("no layer %d", layer)
	return nil
}

func (r *rig) first() *Stack { return r.stacks[0] }
func (r *rig) last() *Stack  { return r.stacks[len(r.stacks)-1] }

func (r *rig) sync() {
	r.t.Helper()
	must(r.t, r.queue.Sync())
}

func (r *rig) read(v kernels.View) []float32 {
	r.t.Helper()
	if v.Len == 0 { // the gradient of a frozen layer
		return nil
	}
	host := make([]float32, v.Len)
	r.queue.Read(kernels.Float32Bytes(host), v)
	r.sync()
	return host
}

func (r *rig) write(v kernels.View, host []float32) {
	r.t.Helper()
	r.queue.Write(v, kernels.Float32Bytes(host))
	r.sync()
}

// load gives every layer the closed-form weights.
func (r *rig) load() *rig {
	r.t.Helper()
	for l := range r.model.Layers() {
		r.write(r.stackOf(l).Params(l), referenceParams(r.model, l))
	}
	r.roundWeights()
	return r
}

// roundWeights follows every change of parameters.
func (r *rig) roundWeights() {
	for _, s := range r.stacks {
		s.RoundWeights(r.queue, Noise{})
	}
}

func (r *rig) zeroGrads() {
	for _, s := range r.stacks {
		s.ZeroGrads(r.queue)
	}
}

// forward sends a micro-batch through all stacks.
func (r *rig) forward(slot, micro int) {
	r.t.Helper()
	tokens, targets := referenceMicro(r.model, r.batch, micro)
	r.first().Slot(slot).SetTokens(r.queue, tokens)
	r.last().Slot(slot).SetTargets(r.queue, targets)
	for i, s := range r.stacks {
		if i > 0 {
			r.write(s.Slot(slot).Input(), r.read(r.stacks[i-1].Slot(slot).Output()))
		}
		s.Slot(slot).Forward(r.queue, r.noise)
	}
}

// evaluate gives the losses of a micro-batch without a backward pass.
func (r *rig) evaluate(slot, micro int) []float32 {
	r.t.Helper()
	r.forward(slot, micro)
	r.last().Slot(slot).Loss(r.queue)
	return r.read(r.last().Slot(slot).Losses())
}

// logits gives the logits [B*T,V] after a forward pass.
func (r *rig) logits(slot int) []float32 {
	r.t.Helper()
	var all []float32
	rows := r.batch * r.model.Context
	for first := 0; first < rows; {
		n := min(r.last().LogitRows(), rows-first)
		all = append(all, r.read(r.last().Slot(slot).Logits(r.queue, first, n))...)
		first += n
	}
	return all
}

// pass is (*Slot).Backward, or one that does a part of it or the same in parts.
type pass func(s *Slot, q kernels.Queue, scale float32)

// backward brings the gradient of scale times a slot's losses back through all stacks and
// returns the losses.
func (r *rig) backward(slot int, scale float32, pass pass) []float32 {
	r.t.Helper()
	for i := len(r.stacks) - 1; i >= 0; i-- {
		s := r.stacks[i]
		if i < len(r.stacks)-1 {
			r.write(s.Slot(slot).OutputGrad(), r.read(r.stacks[i+1].Slot(slot).InputGrad()))
		}
		pass(s.Slot(slot), r.queue, scale)
	}
	return r.read(r.last().Slot(slot).Losses())
}

// unscale ends a step's backward passes.
func (r *rig) unscale() {
	for l := range r.model.Layers() {
		r.stackOf(l).Unscale(r.queue, l)
	}
}

// grads reads all layers' gradients.
func (r *rig) grads() [][]float32 {
	r.t.Helper()
	all := make([][]float32, r.model.Layers())
	for l := range all {
		all[l] = r.read(r.stackOf(l).Grads(l))
	}
	return all
}

// tieGrads gives both ends of the tied embedding the sum of their gradients.
func (r *rig) tieGrads() {
	r.t.Helper()
	n, headLayer := r.model.TiedGradLen(), r.model.Layers()-1
	if n == 0 {
		return
	}
	embed := r.first().Grads(0).Slice(0, n)
	head := r.last().Grads(headLayer)
	head = head.Slice(head.Len-n, n)
	sum := r.read(embed)
	for i, g := range r.read(head) {
		sum[i] += g
	}
	r.write(embed, sum)
	r.write(head, sum)
}

func sameBits(t *testing.T, what string, got, want []float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d elements, want %d", what, len(got), len(want))
	}
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s: element %d is %v, want %v to the bit", what, i, got[i], want[i])
		}
	}
}

func sum64(x []float32) float64 {
	sum := 0.0
	for _, v := range x {
		sum += float64(v)
	}
	return sum
}

// turn reports whether a case is tested: all are in a full run, one of n in a quick one. Sum adds up
// the numbers that the case's kinds have, so that each kind has its turn with all others or nearly so.
func turn(sum, n int) bool { return !testing.Short() || sum%n == 0 }
