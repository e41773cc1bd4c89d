package devices

import (
	"errors"
	"math"
	"time"

	"pnode/kernels"
)

// A calibration sweeps over all works and sizes again and again, and keeps each call's least time: what else the
// machine does for some tenths of a second disturbs a sweep, not a figure.
const (
	leastSweeps, mostSweeps = 3, 12
	sweepsBudget            = 1300 * time.Millisecond
	// batchTime is how long calls are repeated before anybody waits for them, as a step makes them: waiting for a
	// device takes a moment, too.
	batchTime = 300 * time.Microsecond
	// looks is how often a sweep times a batch that is short enough to have a processor to itself.
	looks, shortBatch = 3, time.Millisecond
	// turns is how many sets of operands are used one after the other, as the layers of a model do: those of the call
	// before would be nearer in the caches than they ever are.
	turns = 8
	// longCall bounds calls that are measured. Larger ones are as fast for their size as the largest that was.
	longCall = 15 * time.Millisecond
)

// cell holds the least time of a work at a size.
type cell struct {
	nanos, size float64 // of its calls, one after the other
}

// column has the cells of a work with operands of a type.
type column struct {
	work    kernels.Work
	dtype   kernels.DType
	cells   [kernels.WorkSizes]cell
	batches [kernels.WorkSizes]int // how often the calls are repeated
}

// halves returns the types of halves whose products are measured: those of cards, and on a processor those that it has
// instructions for.
func halves(dev kernels.Device, distant bool) (types []kernels.DType) {
	multiplier, ok := dev.(kernels.HalfMultiplier)
	for _, t := range []kernels.DType{kernels.BF16, kernels.F16} {
		if distant || ok && multiplier.MultipliesHalves(t) {
			types = append(types, t)
		}
	}
	return types
}

// calibrate returns the times of all works by the type of their operands.
func calibrate(dev kernels.Device, distant bool) (map[kernels.DType]kernels.WorkTimes, error) {
	b := bencher{dev: dev, distant: distant}
	if b.q, b.err = dev.NewQueue(); b.err != nil {
		return nil, b.err
	}
	defer b.close()
	var columns []*column
	for w := kernels.WorkProducts; w <= kernels.WorkCopy; w++ {
		if w != kernels.WorkCopy || distant {
			columns = append(columns, &column{work: w, dtype: kernels.F32})
		}
		if w <= kernels.WorkAttentionBackward {
			for _, t := range halves(dev, distant) {
				columns = append(columns, &column{work: w, dtype: t})
			}
		}
	}
	for n, begin := 0, time.Now(); n < leastSweeps || n < mostSweeps && time.Since(begin) < sweepsBudget; n++ {
		for i := range kernels.WorkSizes {
			for _, c := range columns {
				b.measure(c, i)
			}
		}
		if b.err != nil {
			return nil, b.err
		}
	}
	all := map[kernels.DType]kernels.WorkTimes{}
	for _, c := range columns {
		times := all[c.dtype]
		*times.Of(c.work) = c.times()
		all[c.dtype] = times
	}
	return all, nil
}

// times returns what was measured, per call of each size: where nothing was, as much as the size before gives. What only
// disturbed times are is mended: none takes longer than a larger one, and products and attention are at least so many
// percent as fast as smaller ones, which fit between two disturbances.
func (c *column) times() (t kernels.SizeTimes) {
	sizes := c.work.Sizes()
	if c.cells[0].nanos == 0 {
		return t
	}
	for i, size := range sizes {
		if at := c.cells[i]; at.nanos > 0 {
			t[i] = int64(at.nanos * float64(size) / at.size)
		} else {
			t[i] = int64(float64(t[i-1]) * float64(size) / float64(sizes[i-1]))
		}
		t[i] = max(t[i], 1)
		if i > 0 && c.work <= kernels.WorkAttentionBackward {
			const asFast = 80
			t[i] = min(t[i], int64(float64(t[i-1])*float64(size)/float64(sizes[i-1])*100/asFast))
		}
	}
	for i := len(t) - 2; i >= 0; i-- {
		t[i] = min(t[i], t[i+1])
	}
	return t
}

// bencher allocates and times; its first error sticks.
type bencher struct {
	dev     kernels.Device
	distant bool
	turn    int // of turns
	q, back kernels.Queue
	buffers map[place]kernels.Buffer
	err     error
}

// place names a buffer that calls share.
type place struct {
	number int
	dtype  kernels.DType
}

// view returns so many elements of a buffer, which grows with what is asked for, others each turn while those are few. Numbers are zero: those that other calls
// left could be so small that a processor is slow with them.
func (b *bencher) view(number int, dtype kernels.DType, count int) kernels.View {
	if b.err != nil {
		return kernels.View{}
	}
	const few = 1 << 20
	at, all, from := place{number, dtype}, count, 0
	if count <= few {
		all, from = turns*count, b.turn*count
	}
	if old := b.buffers[at]; old == nil || old.Len() < all {
		if old != nil {
			old.Free()
			delete(b.buffers, at)
		}
		fresh, err := b.dev.Alloc(dtype, all)
		if err != nil {
			b.err = err
			return kernels.View{}
		}
		if b.buffers == nil {
			b.buffers = map[place]kernels.Buffer{}
		}
		b.buffers[at] = fresh
	}
	v := kernels.Whole(b.buffers[at]).Slice(from, count)
	if dtype == kernels.F32 {
		b.q.Do(kernels.Fill(v, count, 0))
	}
	return v
}

func (b *bencher) close() {
	for _, buffer := range b.buffers {
		buffer.Free()
	}
	for _, q := range []kernels.Queue{b.q, b.back} {
		if q != nil {
			b.err = errors.Join(b.err, q.Close())
		}
	}
}

// measure times the calls of a column at a size once more. Sizes that would take long, that there is no memory for, or
// that the device does not support stay without a time.
func (b *bencher) measure(c *column, i int) {
	if b.err != nil || i > 0 && (c.cells[i-1].nanos == 0 || b.tooLong(c, i)) {
		return
	}
	if c.work == kernels.WorkCopy {
		b.copies(c, i)
		return
	}
	var calls []kernels.Call
	for b.turn = range turns {
		calls = append(calls, b.calls(c.work, c.dtype, i)...)
	}
	if b.err == nil {
		b.err = b.q.Sync()
	}
	if errors.Is(b.err, kernels.ErrOutOfMemory) && i > 0 {
		b.err = nil
		return
	}
	var now cell
	for _, call := range calls {
		if b.err == nil && errors.Is(b.dev.Supports(call), kernels.ErrUnsupported) {
			return
		}
		_, size, count := call.Work()
		now.size += float64(size * count)
	}
	now.nanos = b.took(&c.batches[i], func(k int) {
		each := len(calls) / turns
		for _, call := range calls[k%turns*each:][:each] {
			b.q.Do(call)
		}
	})
	now.size /= turns
	c.note(i, now)
}

// tooLong reports whether the calls of a size would take too long by those of the one before.
func (b *bencher) tooLong(c *column, i int) bool {
	size, before := c.work.Sizes()[i], c.cells[i-1]
	if c.work == kernels.WorkAttentionForward || c.work == kernels.WorkAttentionBackward {
		s := b.attention(i)
		size *= int64(s.B * s.H)
	}
	return before.nanos/before.size*float64(size) > float64(longCall)
}

// note keeps the least time.
func (c *column) note(i int, now cell) {
	if old := c.cells[i]; old.nanos == 0 || now.nanos < old.nanos {
		c.cells[i] = now
	}
}

// took returns the nanoseconds of what do queues, in the turn that it is given. It repeats that for batchTime at least, and
// remembers how often in batch.
func (b *bencher) took(batch *int, do func(turn int)) float64 {
	if b.err != nil {
		return math.Inf(1)
	}
	*batch = max(*batch, 1)
	least := time.Duration(math.MaxInt64)
	for n := 0; n < looks; {
		begin := time.Now()
		for k := range *batch {
			do(k)
		}
		b.err = b.q.Sync()
		took := time.Since(begin)
		if took < batchTime && b.err == nil {
			*batch *= 2
			n, least = 0, math.MaxInt64
			continue
		}
		least = min(least, max(took, 1))
		if n++; took > shortBatch || b.err != nil {
			break
		}
	}
	return float64(least) / float64(*batch)
}

// copies times writing one half of a size to the device while the other one is read.
func (b *bencher) copies(c *column, i int) {
	if b.back == nil {
		b.back, b.err = b.dev.NewQueue()
	}
	floats := int(c.work.Sizes()[i] / 4)
	to, from := b.view(0, kernels.F32, floats), b.view(1, kernels.F32, floats)
	if b.err != nil {
		if errors.Is(b.err, kernels.ErrOutOfMemory) && i > 0 {
			b.err = nil
		}
		return
	}
	sent, received := make([]byte, 4*floats), make([]byte, 4*floats)
	begin, read := time.Now(), make(chan error, 1)
	go func() {
		b.back.Read(received, from)
		read <- b.back.Sync()
	}()
	b.q.Write(to, sent)
	b.err = errors.Join(b.q.Sync(), <-read)
	c.note(i, cell{nanos: float64(max(time.Since(begin), 1)), size: float64(4 * floats)})
}

// Shapes of the calls, by size.
var (
	productRows = [kernels.WorkSizes]int{16, 32, 64, 128, 256, 512, 2048}
	streamRows  = [kernels.WorkSizes][2]int{{16, 32}, {64, 64}, {128, 256}, {512, 512}, {2048, 1024}, {8192, 1024}, {16384, 2048}}
)

// attention returns the shape of a size: with heads for every thread of a processor, and for more of a card.
func (b *bencher) attention(i int) kernels.AttentionShape {
	s := kernels.AttentionShape{
		B: 1, T: [kernels.WorkSizes]int{16, 32, 64, 128, 256, 512, 1024}[i], H: [kernels.WorkSizes]int{1, 2, 4, 8, 8, 8, 8}[i],
		D: [kernels.WorkSizes]int{32, 32, 32, 32, 64, 64, 64}[i],
	}
	if b.distant {
		s.B = 16
	}
	s.K = s.H
	return s
}

// calls returns those that stand for a work at a size: a linear layer's products, both ways through an activation with
// the loss, norms and sums.
func (b *bencher) calls(w kernels.Work, dtype kernels.DType, i int) []kernels.Call {
	const f32 = kernels.F32
	var none kernels.View
	switch w {
	case kernels.WorkProducts:
		n := productRows[i]
		small, wide, weight := b.view(0, dtype, n*n), b.view(1, dtype, 4*n*n), b.view(2, dtype, 4*n*n)
		out := b.view(3, f32, 4*n*n)
		return []kernels.Call{
			kernels.MatMul(out, small, weight, none, n, 4*n, n, kernels.TransB),
			kernels.MatMul(b.view(4, f32, n*n), wide, weight, none, n, n, 4*n, 0),
			kernels.MatMul(out, wide, small, none, 4*n, n, n, kernels.TransA|kernels.Accumulate),
		}
	case kernels.WorkAttentionForward, kernels.WorkAttentionBackward:
		s := b.attention(i)
		rows := s.B * s.T * s.H
		out, qkv, lse := b.view(0, dtype, rows*s.D), b.view(1, dtype, 3*rows*s.D), b.view(2, f32, rows)
		if w == kernels.WorkAttentionForward {
			return []kernels.Call{kernels.AttentionForward(out, lse, qkv, none, s)}
		}
		return []kernels.Call{kernels.AttentionBackward(b.view(3, dtype, 3*rows*s.D), b.view(4, f32, rows), b.view(5, dtype, rows*s.D), qkv, out, lse, none, s)}
	case kernels.WorkUpdate:
		n := int(w.Sizes()[i] / 32)
		param, grad := b.view(0, f32, n), b.view(3, f32, n)
		scalars := kernels.AdamWScalars{LR: 1e-3, Beta1: .9, Beta2: .99, Eps: 1e-8, Correction1: 1, Correction2: 1, GradScale: 1}
		return []kernels.Call{kernels.AdamW(param, b.view(1, f32, n), b.view(2, f32, n), grad, n, scalars), kernels.SumSquares(b.view(4, f32, 1), grad, n)}
	}
	n, c := streamRows[i][0], streamRows[i][1]
	x, y, z := b.view(0, f32, n*c), b.view(1, f32, n*c), b.view(2, f32, n*c)
	if w == kernels.WorkNonlinear {
		return []kernels.Call{
			kernels.GELUForward(y, x, n*c), kernels.GELUBackward(z, y, x, n*c),
			kernels.CrossEntropy(b.view(3, f32, n), y, b.view(0, kernels.I32, n), n, c, 1),
		}
	}
	mean, rstd, weight, bias := b.view(3, f32, n), b.view(4, f32, n), b.view(5, f32, c), b.view(6, f32, c)
	return []kernels.Call{
		kernels.AddLayerNormForward(y, x, mean, rstd, x, z, weight, bias, n, c, 1e-5),
		kernels.LayerNormBackwardInput(z, y, x, weight, mean, rstd, z, n, c),
		kernels.LayerNormBackwardWeight(weight, bias, y, x, mean, rstd, n, c),
		kernels.ColumnSum(bias, y, n, c, kernels.Accumulate),
	}
}
