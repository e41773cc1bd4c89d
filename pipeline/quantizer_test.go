package pipeline

import (
	"bytes"
	"context"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pnode/kernels"
	"pnode/kernels/cpu"
	"pnode/kernels/quant"
	"pnode/pipeline/collective"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// tally is a device that counts calls of an operation.
type tally struct {
	kernels.Device
	op kernels.Op
	n  *atomic.Int64
}

func (d tally) NewQueue() (kernels.Queue, error) {
	q, err := d.Device.NewQueue()
	return tallyQueue{q, d}, err
}

type tallyQueue struct {
	kernels.Queue
	dev tally
}

func (q tallyQueue) Do(c kernels.Call) {
	if c.Op == q.dev.op {
		q.dev.n.Add(1)
	}
	q.Queue.Do(c)
}

// TestPackedMessagesChangeNoBit: devices of their own memory pack and unpack what crosses in int8,
// and passes wait for that as for copies.
func TestPackedMessagesChangeNoBit(t *testing.T) {
	t.Parallel()
	run := deep()
	run.Train.Steps, run.Model.Channels = 2, quant.Group // devices pack whole groups of a token
	for i, text := range []string{"1f1b", "zb-h1", "interleaved:v=2", "seq1f1b"} {
		plan := withCodec(scheduled(t, run, text, 4), "int8")
		want := train(t, run, plan, &memoryKeeper{})
		for name, d := range map[string]*late{
			"nothing": distantBy(0, 0, 0), "writes": distantBy(0, 9*time.Millisecond, 0), "calls": distantBy(9*time.Millisecond, 1, 0),
		} {
			for k, op := range []kernels.Op{kernels.OpQuantize, kernels.OpDequantize} {
				if !meets(i, k, 2) {
					continue
				}
				var calls atomic.Int64
				over := func(inner kernels.Device) kernels.Device { return d.of(tally{inner, op, &calls}) }
				synctest.Test(t, func(t *testing.T) {
					equal(t, text+", late "+name, trainAs(t, run, plan, &memoryKeeper{}, over), want)
				})
				if calls.Load() == 0 {
					t.Errorf("%s, late %s: no %v on a device", text, name, op)
				}
			}
		}
	}
}

// withOutliers are n normal elements, every hundredth so many times as large.
func withOutliers(rng *rand.Rand, n int, times float32) []float32 {
	xs := make([]float32, n)
	for i := range xs {
		xs[i] = float32(rng.NormFloat64() * 1e-3)
		if i%100 == 0 {
			xs[i] *= times
		}
	}
	return xs
}

// arriving is an exchange on which one message is there.
type arriving struct {
	collective.MemoryEnd
	payload []byte
}

func (a *arriving) Receive(context.Context, plan.PeerID, wire.Tag) ([]byte, error) {
	return a.payload, nil
}

// TestPackedTensors wants the bytes of wire.AppendTensor whether a device packs or not, for what
// int8 holds, hardly holds and does not hold; and the refusal of what is not finite at both ends.
func TestPackedTensors(t *testing.T) {
	dev, err := cpu.New(cpu.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	run := testRun()
	run.Model.Channels = quant.Group // devices pack whole groups of a token
	p := withCodec(cut(run, "1f1b", []int{0, 2}), "int8")
	codecs, err := boundaryCodecs(p.Replicas[0])
	if err != nil {
		t.Fatal(err)
	}
	h := &stageRun{StageRuntime: &StageRuntime{StageID: plan.StageID{Stage: 1}, pipe: p.Replicas[0], codecs: codecs}}
	var message arriving
	s := &stepRun{program: program{spec: run, plan: p, worker: plan.WorkerID{Peer: "here"}}, cfg: &Config{Exchange: &message}}
	const most = 5000
	for _, c := range []*copyQueue{&h.downloads, &h.activations} {
		if *c, err = newCopyQueue(dev); err != nil {
			t.Fatal(err)
		}
		defer c.queue.Close()
		if c.quantizer, err = newQuantizer(dev, most); err != nil {
			t.Fatal(err)
		}
		defer c.quantizer.free()
	}
	memory, err := dev.Alloc(kernels.F32, 2*most)
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Free()
	rng := rand.New(rand.NewPCG(1, 2))
	for step := plan.Step(1); step <= 200; step++ {
		outliers := math.Exp(rng.Float64()*12 - 4) // through the bound, which is near 3 times the spread
		xs := withOutliers(rng, 1+rng.IntN(most), float32(outliers))
		if step%17 == 0 {
			xs[rng.IntN(len(xs))] = float32(math.NaN())
		}
		cut := rng.IntN(len(xs))
		if step%2 == 0 {
			cut -= cut % 128
		}
		tag := wire.Tag{Kind: wire.Activation, Step: step, Stage: 1}
		rows := []kernels.View{kernels.Whole(memory).Slice(7, cut), kernels.Whole(memory).Slice(most+3, len(xs)-cut)}
		if cut == 0 {
			rows = rows[1:]
		}
		writeRows(h.downloads.queue, rows, kernels.Float32Bytes(xs))
		sent := &transfer{stage: h, tag: tag, rows: rows, after: h.downloads.queue.Record(), done: make(chan struct{})}
		got, used, err := s.encode(sent)
		codec, noise := s.crossing(h.StageRuntime, tag)
		if step%17 == 0 {
			wantFault(t, err, plan.Fault{Accused: "here", Kind: plan.BadTensor, Step: step})
			message.payload, _ = wire.AppendTensor(nil, codec, xs, quant.Group, noise)
			err = s.fetch(t.Context(), &transfer{stage: h, tag: tag, rows: rows, after: h.activations.queue.Record()})
			wantFault(t, err, plan.Fault{Accused: p.Replicas[0].Stages[0].Peer, Kind: plan.BadTensor, Step: step})
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		<-sent.done
		want, wantUsed := wire.AppendTensor(nil, codec, xs, quant.Group, noise)
		if !bytes.Equal(got, want) || used.Codec != wantUsed.Codec || !nearTo(used.RelError, wantUsed.RelError) || !nearTo(used.Refused, wantUsed.Refused) {
			t.Fatalf("%d elements in rows of %d, outliers %v: %+v, want %+v", len(xs), cut, outliers, used, wantUsed)
		}
		decoded := make([]float32, len(xs))
		if _, err := wire.DecodeTensor(decoded, quant.Group, want); err != nil {
			t.Fatal(err)
		}
		message.payload = want
		if err := s.fetch(t.Context(), &transfer{stage: h, tag: tag, rows: rows, after: h.activations.queue.Record()}); err != nil {
			t.Fatal(err)
		}
		placed := make([]float32, len(xs))
		readRows(h.downloads.queue, kernels.Float32Bytes(placed), rows)
		if err := h.downloads.queue.Sync(); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(kernels.Float32Bytes(placed), kernels.Float32Bytes(decoded)) {
			t.Fatalf("%d elements in rows of %d, %v: other elements arrive", len(xs), cut, used.Codec)
		}
	}
}

// nearTo compares errors that were summed in float32 and in float64.
func nearTo(a, b float64) bool { return math.Abs(a-b) <= 1e-4*b || a != a && b != b }
