package pipeline

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"pnode/kernels"
	"pnode/kernels/cpu"
	"pnode/planner/plan"
)

// deviceVectors are vectors of these lengths on a device, element i of vector k being
// 1000k+i, and their bytes.
func deviceVectors(t *testing.T, lengths ...int) (kernels.Queue, []kernels.View, []byte) {
	t.Helper()
	device, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	q, err := device.NewQueue()
	if err != nil {
		t.Fatal(err)
	}
	var views []kernels.View
	var all []float32
	for k, n := range lengths {
		buf, err := device.Alloc(kernels.F32, n)
		if err != nil {
			t.Fatal(err)
		}
		host := make([]float32, n)
		for i := range host {
			host[i] = float32(1000*k + i)
		}
		q.Write(kernels.Whole(buf), kernels.Float32Bytes(host))
		views, all = append(views, kernels.Whole(buf)), append(all, host...)
	}
	t.Cleanup(func() {
		for _, v := range views {
			v.Buf.Free()
		}
		device.Close()
	})
	return q, views, kernels.Float32Bytes(all)
}

func anything([]byte) error { return nil }

func TestViewReader(t *testing.T) {
	for name, wrap := range map[string]func(io.Reader) io.Reader{
		"whole": func(r io.Reader) io.Reader { return r }, "bytes": iotest.OneByteReader, "halves": iotest.HalfReader,
	} {
		q, views, want := deviceVectors(t, 3, 70_000, 1)
		ends := 0
		got, err := io.ReadAll(wrap(newViewReader(q, views, anything, func() { ends++ })))
		if err != nil || !bytes.Equal(got, want) || ends != 1 {
			t.Errorf("%s: %d bytes of %d, ended %d times: %v", name, len(got), len(want), ends, err)
		}
	}
}

func TestViewWriter(t *testing.T) {
	for _, piece := range []int{1, 3, 4, 7, 1 << 20} {
		q, views, _ := deviceVectors(t, 3, 700, 1)
		sent := make([]byte, 4*704)
		for i := range sent {
			sent[i] = byte(i * 7)
		}
		w := &viewWriter{queue: q, check: anything, views: append([]kernels.View(nil), views...)}
		for rest := sent; len(rest) > 0; rest = rest[min(piece, len(rest)):] {
			if err := w.complete(); err == nil {
				t.Errorf("complete with %d bytes missing", len(rest))
			}
			if n, err := w.Write(rest[:min(piece, len(rest))]); err != nil || n != min(piece, len(rest)) {
				t.Fatalf("%d bytes written: %v", n, err)
			}
		}
		got, err := io.ReadAll(newViewReader(q, views, anything, func() {}))
		if err != nil || !bytes.Equal(got, sent) || w.complete() != nil {
			t.Errorf("pieces of %d: not what was sent (%v, %v)", piece, err, w.complete())
		}
		if _, err := w.Write(make([]byte, 4)); err == nil || !strings.Contains(err.Error(), "4 bytes more") {
			t.Errorf("beyond the end: %v", err)
		}
	}
}

// lateKeeper reads a state when a later forward pass has begun.
type lateKeeper struct {
	*memoryKeeper
	later chan struct{}
}

func (k lateKeeper) Save(ctx context.Context, s State) error {
	select {
	case <-k.later:
	case <-ctx.Done():
		return ctx.Err()
	}
	return k.memoryKeeper.Save(ctx, s)
}

func (k lateKeeper) Load(context.Context, int, Part, io.Writer) error { return io.ErrUnexpectedEOF }

// signalling is data whose last micro-batch of the step after a save lets it go on.
type signalling struct {
	patterned
	run   plan.RunSpec
	later chan struct{}
}

func (s signalling) Micro(ctx context.Context, step plan.Step, micro plan.Micro, batch int) (tokens, targets []int32, err error) {
	if int(micro) == s.run.Train.Micros-1 && step > 1 && (step-1)%s.run.Train.CheckpointEvery == 0 {
		s.later <- struct{}{}
	}
	return s.patterned.Micro(ctx, step, micro, batch)
}

// TestSaveIsOfItsStep reads a state late, in the middle of the next step, and compares it
// with one that was read at once.
func TestSaveIsOfItsStep(t *testing.T) {
	run := testRun()
	run.Train.Steps = 5 // saves at 3 and 5: the first is read during step 4
	var eager, late memoryKeeper
	plan := cut(run, "1f1b", []int{0})
	train(t, run, plan, &eager)
	later := make(chan struct{}, 2)
	trainOn(t, run, plan, lateKeeper{&late, later}, signalling{patterned{run.Model.Context}, run, later}, func(r StepResult) {
		if r.Step == run.Train.Steps {
			later <- struct{}{} // the last save has no step after it
		}
	})
	for step, layers := range eager.layers {
		for l, state := range layers {
			if !bytes.Equal(late.layers[step][l], state) {
				t.Errorf("step %d layer %d: the state that was read late is another", step, l)
			}
		}
	}
}
