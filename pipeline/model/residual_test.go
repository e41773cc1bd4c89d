package model

import (
	"fmt"
	"testing"

	"pnode/kernels"
)

// opCount counts calls on their way to a queue.
type opCount struct {
	kernels.Queue
	calls map[kernels.Op]int
}

func (q *opCount) Do(c kernels.Call) {
	q.calls[c.Op]++
	q.Queue.Do(c)
}

// TestResidualsJoinNorms: sums between blocks are one call with the norms behind them, whatever is
// kept; outputs and losses have the bits of a pass layer by layer.
func TestResidualsJoinNorms(t *testing.T) {
	eachFamily(t, func(t *testing.T, ref reference) {
		for storage := range storages {
			for level := range recomputeLevels {
				r := newRig(t, rigConfig{model: ref.Config, batch: ref.Batch, storage: storage, level: level}).load()
				checkJoined(t, fmt.Sprintf("%v, recompute %v", storage, level), r)
			}
		}
	})
}

func checkJoined(t *testing.T, name string, r *rig) {
	s, blocks := r.first(), r.model.Blocks
	want := r.evaluate(0, 0) // writes tokens and targets too
	for _, l := range s.slots[0].layers {
		l.forward(r.queue, s.all)
	}
	s.Slot(0).Loss(r.queue)
	sameBits(t, name, r.read(s.Slot(0).Losses()), want)
	counted := &opCount{r.queue, map[kernels.Op]int{}}
	s.Slot(0).Forward(counted, Noise{})
	r.sync()
	sums := counted.calls[kernels.OpAdd]
	joined := counted.calls[kernels.OpAddLayerNormForward] + counted.calls[kernels.OpAddRMSNormForward]
	norms := counted.calls[kernels.OpLayerNormForward] + counted.calls[kernels.OpRMSNormForward]
	if sums != 1 || joined != 2*blocks-1 || norms != 1 {
		t.Errorf("%s: %d sums, %d norms of sums and %d other norms, want 1, %d and 1", name, sums, joined, norms, 2*blocks-1)
	}
}

// TestResidualsPassOn: what is not the norm of the sum before it comes as it was, in order.
func TestResidualsPassOn(t *testing.T) {
	device := newRig(t, rigConfig{model: tiny, batch: 1}).first().cfg.Device
	view := func(n int) kernels.View {
		b, err := device.Alloc(kernels.F32, n)
		must(t, err)
		t.Cleanup(b.Free)
		return kernels.Whole(b)
	}
	a, b, c, sum, out, rstd, weight := view(6), view(6), view(6), view(6), view(6), view(2), view(3)
	long, add := view(9), kernels.Add(sum, a, b, 6)
	norm := func(out, x kernels.View) kernels.Call {
		return kernels.RMSNormForward(out, rstd, x, weight, 2, 3, 1e-5)
	}
	for name, calls := range map[string][]kernels.Call{
		"another norm":          {add, norm(out, c)},
		"a part of the sum":     {kernels.Add(a, a, b, 6), kernels.RMSNormForward(out.Slice(0, 3), rstd.Slice(0, 1), a.Slice(0, 3), weight, 1, 3, 1e-5)},
		"over part of a term":   {kernels.Add(sum, long.Slice(0, 6), b, 6), norm(long.Slice(3, 6), sum)},
		"something in between":  {add, kernels.Scale(c, 6, 2), norm(out, sum)},
		"two sums":              {add, kernels.Add(c, a, b, 6), norm(out, sum)},
		"a sum behind all":      {norm(out, a), add},
		"a norm without a sum":  {norm(out, a), norm(out, sum)},
		"a sum of its own norm": {norm(out, sum), kernels.Add(a, out, sum, 6)},
	} {
		got := &recorder{}
		joined := residuals{issuer: got}
		for _, call := range calls {
			joined.Do(call)
		}
		joined.end()
		if fmt.Sprint(got.calls) != fmt.Sprint(calls) {
			t.Errorf("%s: %v, want %v", name, got.calls, calls)
		}
	}
}

type recorder struct{ calls []kernels.Call }

func (r *recorder) Do(c kernels.Call) { r.calls = append(r.calls, c) }
