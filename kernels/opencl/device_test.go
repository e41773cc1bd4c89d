package opencl

import (
	"errors"
	"sync"
	"testing"

	"pnode/kernels"
	"pnode/kernels/gpu"
	"pnode/kernels/null"
)

func TestInfo(t *testing.T) {
	dev := openDevice(t)
	if dev.Name() != "opencl:0" || dev.Info.Name == "" || dev.Platform == "" || dev.ComputeUnits < 1 || dev.MemoryBytes < dev.AllocBytes || dev.AllocBytes == 0 {
		t.Errorf("the device says of itself: %+v", dev.Info)
	}
	if len(dev.Extensions) == 0 {
		t.Error("the device has no extensions")
	}
}

// TestMemoryIsPortioned: buffers are no larger than the driver says.
func TestMemoryIsPortioned(t *testing.T) {
	dev := openDevice(t)
	var portioned kernels.Portioned = dev
	if most := portioned.MaxBufferBytes(); most < 1 || most != int64(dev.AllocBytes) {
		t.Errorf("%d bytes in a buffer, the driver says %d", most, dev.AllocBytes)
	}
}

func TestUnusable(t *testing.T) {
	if _, err := (Info{Name: "old card", Unusable: "the driver has no compiler"}).Open(); err == nil {
		t.Error("an unusable device opens")
	}
	small := Info{GroupItems: 100, LocalBytes: 1 << 20}
	if got := small.geometries(); len(got) != 1 || got[0].Side != 8 {
		t.Errorf("work-groups of 100 items: %v", got)
	}
	if got := (Info{GroupItems: 1024, LocalBytes: 4096}).geometries(); len(got) != 0 {
		t.Errorf("local memory of 4 KiB: %v", got)
	}
}

func TestBuffers(t *testing.T) {
	dev := openDevice(t)
	q := newQueue(t, dev)
	for _, n := range []int{0, 1, 1000} {
		for _, dtype := range []kernels.DType{kernels.F32, kernels.BF16, kernels.I32} {
			buf, err := dev.Alloc(dtype, n)
			if err != nil {
				t.Fatal(err)
			}
			got := make([]byte, n*dtype.SizeBytes())
			for i := range got {
				got[i] = 7
			}
			q.Read(got, kernels.Whole(buf))
			if err := q.Sync(); err != nil {
				t.Fatal(err)
			}
			for i, b := range got {
				if b != 0 {
					t.Fatalf("byte %d of %d %v is %d", i, n, dtype, b)
				}
			}
			buf.Free()
			buf.Free()
		}
	}
	if _, err := dev.Alloc(kernels.F32, -1); !errors.Is(err, kernels.ErrBadCall) {
		t.Errorf("-1 elements: %v", err)
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
}

func TestRefusals(t *testing.T) {
	dev := openDevice(t)
	freed, err := dev.Alloc(kernels.F32, 8)
	if err != nil {
		t.Fatal(err)
	}
	freed.Free()
	foreign, err := null.New().Alloc(kernels.F32, 8)
	if err != nil {
		t.Fatal(err)
	}
	for name, buf := range map[string]kernels.Buffer{"freed": freed, "foreign": foreign} {
		if err := dev.Supports(kernels.Fill(kernels.Whole(buf), 8, 1)); !errors.Is(err, kernels.ErrBadCall) {
			t.Errorf("%s: %v", name, err)
		}
		q := newQueue(t, dev)
		q.Read(make([]byte, 32), kernels.Whole(buf))
		if err := q.Sync(); !errors.Is(err, kernels.ErrBadCall) {
			t.Errorf("%s: read: %v", name, err)
		}
		_ = q.Close() // gives the same error again
	}
	wide := kernels.AttentionShape{B: 1, T: 1, H: 1, K: 1, D: 300}
	out, lse, qkv := newBuffer(t, dev, kernels.F32, 300), newBuffer(t, dev, kernels.F32, 1), newBuffer(t, dev, kernels.F32, 900)
	if err := dev.Supports(kernels.AttentionForward(out, lse, qkv, kernels.View{}, wide)); !errors.Is(err, kernels.ErrUnsupported) {
		t.Errorf("heads of 300 channels: %v", err)
	}
}

func TestClosed(t *testing.T) {
	dev := open(t, firstDevice(t))
	x, q := newBuffer(t, dev, kernels.F32, 8), newQueue(t, dev)
	if err := dev.Close(); err != nil {
		t.Fatal(err)
	}
	q.Do(kernels.Fill(x, 8, 1))
	if err := q.Close(); !errors.Is(err, gpu.ErrClosed) {
		t.Errorf("a call on a closed device: %v", err)
	}
	if _, err := dev.NewQueue(); !errors.Is(err, gpu.ErrClosed) {
		t.Errorf("a queue of a closed device: %v", err)
	}
}

// TestQueuesAtTheSameTime uses the same kernels from several goroutines.
func TestQueuesAtTheSameTime(t *testing.T) {
	dev := openDevice(t)
	const n = 5000
	var group sync.WaitGroup
	for g := range 4 {
		x, q := newBuffer(t, dev, kernels.F32, n), newQueue(t, dev)
		group.Go(func() {
			for range 30 {
				q.Do(kernels.Fill(x, n, float32(g+1)))
				q.Do(kernels.Add(x, x, x, n))
			}
			got := make([]float32, n)
			q.Read(kernels.Float32Bytes(got), x)
			if err := q.Close(); err != nil {
				t.Error(err)
			}
			for i, v := range got {
				if v != float32(2*(g+1)) {
					t.Errorf("queue %d: element %d is %v", g, i, v)
					return
				}
			}
		})
	}
	group.Wait()
}

// TestDoAllocatesNothing: a step makes hundreds of calls.
func TestDoAllocatesNothing(t *testing.T) {
	dev := openDevice(t)
	x, y, q := newBuffer(t, dev, kernels.F32, 64), newBuffer(t, dev, kernels.F32, 8), newQueue(t, dev)
	for _, c := range []kernels.Call{kernels.Fill(x, 64, 1), kernels.ColumnSum(y, x, 8, 8, 0)} {
		q.Do(c) // makes scratch memory
		if n := testing.AllocsPerRun(20, func() { q.Do(c) }); n != 0 {
			t.Errorf("%v: %v allocations", c, n)
		}
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
}
