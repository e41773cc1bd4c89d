package opencl

import (
	"errors"
	"strings"
	"testing"

	"pnode/kernels"
	"pnode/kernels/native"
)

// newBuffer gives a view of a fresh buffer of count elements.
func newBuffer(t testing.TB, dev *Device, dtype kernels.DType, count int) kernels.View {
	t.Helper()
	buf, err := dev.Alloc(dtype, count)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(buf.Free)
	return kernels.Whole(buf)
}

func newQueue(t testing.TB, dev *Device) kernels.Queue {
	t.Helper()
	q, err := dev.NewQueue()
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// failing replaces a function by one that only returns a status.
func failing(dev *Device, f function, s status) (restore func()) {
	whole, broken := dev.driver.lib, *dev.driver.lib
	broken[f] = native.Callback(func() uintptr { return uintptr(uint32(s)) })
	dev.driver.lib = &broken
	return func() { dev.driver.lib = whole }
}

// failingCreate replaces a function that makes a handle and has its status at the fifth place.
func failingCreate(dev *Device, f function, s status) (restore func()) {
	whole, broken := dev.driver.lib, *dev.driver.lib
	broken[f] = native.Callback(func(_, _, _, _ uintptr, code *status) uintptr {
		*code = s
		return 0
	})
	dev.driver.lib = &broken
	return func() { dev.driver.lib = whole }
}

// wantSticky wants an error twice from Sync, that names the device and the driver's code.
func wantSticky(t *testing.T, q kernels.Queue, want error, code status) {
	t.Helper()
	for range 2 {
		err := q.Sync()
		if err == nil || want != nil && !errors.Is(err, want) || !strings.Contains(err.Error(), code.String()) {
			t.Errorf("Sync gives %v, want %v with %v", err, want, code)
		}
	}
}

func TestLostDevice(t *testing.T) {
	dev := openDevice(t)
	x := newBuffer(t, dev, kernels.F32, 8)
	for code, want := range map[status]error{
		deviceNotAvailable: kernels.ErrLost, invalidCommandQueue: kernels.ErrLost, execStatusError: kernels.ErrLost,
		outOfResources: nil,
	} {
		for _, f := range []function{finish, enqueueNDRangeKernel, enqueueWriteBuffer, setKernelArg} {
			q := newQueue(t, dev)
			restore := failing(dev, f, code)
			q.Do(kernels.Fill(x, 8, 1))
			q.Write(x, make([]byte, 32))
			first := q.Sync()
			restore()
			wantSticky(t, q, want, code)
			if first == nil || !strings.Contains(first.Error(), f.String()) {
				t.Errorf("%v fails: %v", f, first)
			}
			if err := q.Close(); err == nil {
				t.Error("Close forgets the error")
			}
		}
	}
}

func TestOutOfMemory(t *testing.T) {
	dev := openDevice(t)
	if _, err := dev.Alloc(kernels.F32, int(dev.AllocBytes/4)+1<<20); !errors.Is(err, kernels.ErrOutOfMemory) {
		t.Errorf("a buffer beyond the largest: %v", err)
	}
	for _, code := range []status{memAllocationFailure, outOfResources, outOfHostMemory} {
		restore := failingCreate(dev, createBuffer, code)
		_, err := dev.Alloc(kernels.F32, 8)
		restore()
		if !errors.Is(err, kernels.ErrOutOfMemory) || !strings.Contains(err.Error(), "alloc of 32 bytes") {
			t.Errorf("%v: %v", code, err)
		}
	}
	in, out := newBuffer(t, dev, kernels.F32, 100), newBuffer(t, dev, kernels.F32, 10)
	q := newQueue(t, dev)
	restore := failingCreate(dev, createBuffer, memAllocationFailure)
	q.Do(kernels.ColumnSum(out, in, 10, 10, 0)) // has scratch memory
	restore()
	wantSticky(t, q, kernels.ErrOutOfMemory, memAllocationFailure)
	_ = q.Close() // gives the same error again
}

// TestBuildFailure wants the compiler's words, with file and line of the source.
func TestBuildFailure(t *testing.T) {
	dev := openDevice(t)
	p := program{lib: dev.driver.lib}
	defer p.release()
	err := p.compile(dev.driver.context, dev.driver.id, "#line 7 \"broken.cl\"\nkernel void f(global float *x) { *x = nothing; }\n", buildOptions)
	if err == nil {
		t.Fatal("no error for a source with one")
	}
	for _, part := range []string{buildProgramFailure.String(), "broken.cl:7", "nothing"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error is %q, want %q in it", err, part)
		}
	}
}

// TestBadIndices wants them found by the kernels and named at Sync.
func TestBadIndices(t *testing.T) {
	dev := openDevice(t)
	x, y, z := newBuffer(t, dev, kernels.F32, 6), newBuffer(t, dev, kernels.F32, 18), newBuffer(t, dev, kernels.F32, 2)
	index, none := newBuffer(t, dev, kernels.I32, 2), kernels.View{}
	shape := kernels.AttentionShape{B: 1, T: 2, H: 1, K: 1, D: 3}
	dqkv, delta, dout := newBuffer(t, dev, kernels.F32, 18), newBuffer(t, dev, kernels.F32, 2), newBuffer(t, dev, kernels.F32, 6)
	cache := newBuffer(t, dev, kernels.F32, 12)
	for _, trial := range []struct {
		name string
		call kernels.Call
	}{
		{"tokens", kernels.EmbedForward(x, index, y, none, 1, 2, 3, 6)},
		{"tokens", kernels.EmbedBackward(y, none, x, index, 1, 2, 3, 6)},
		{"targets", kernels.CrossEntropy(z, x, index, 2, 3, 1)},
		{"starts", kernels.AttentionForward(x, z, y, index, shape)},
		{"starts", kernels.AttentionBackward(dqkv, delta, dout, y, x, z, index, shape)},
		{"starts", kernels.AttentionCached(x, cache, y, index, kernels.CachedAttentionShape{AttentionShape: shape, Max: 2})},
	} {
		for _, bad := range []int32{1 << 30, 0} {
			q := newQueue(t, dev)
			q.Write(index, kernels.Int32Bytes([]int32{0, bad}))
			q.Do(trial.call)
			err := q.Sync()
			if bad == 0 && err != nil {
				t.Errorf("%v: %v", trial.call, err)
			}
			if bad != 0 && (!errors.Is(err, kernels.ErrBadCall) || !strings.Contains(err.Error(), trial.name)) {
				t.Errorf("%v with a bad index: %v", trial.call, err)
			}
			if again := q.Close(); !errors.Is(again, err) {
				t.Errorf("%v: Close gives %v after %v", trial.call, again, err)
			}
		}
	}
}
