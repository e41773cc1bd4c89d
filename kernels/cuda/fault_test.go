package cuda

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pnode/kernels"
	"pnode/kernels/gpu"
)

// wantSticky wants an error twice from Sync, that names the driver's code.
func wantSticky(t *testing.T, q kernels.Queue, want error, code result) {
	t.Helper()
	for range 2 {
		err := q.Sync()
		if err == nil || want != nil && !errors.Is(err, want) || !strings.Contains(err.Error(), code.String()) {
			t.Errorf("Sync gives %v, want %v with %v", err, want, code)
		}
	}
}

// TestErrorsStick lets each function that queues use fail, at once and later.
func TestErrorsStick(t *testing.T) {
	f := newFake(t, &plain{}, 1)
	dev := openFake(t, 0)
	x := newBuffer(t, dev, kernels.F32, 8)
	for code, want := range map[result]error{
		illegalAddress: kernels.ErrLost, launchFailed: kernels.ErrLost, eccUncorrectable: kernels.ErrLost, deviceUnavailable: kernels.ErrLost,
		launchOutOfRes: nil, invalidHandle: nil,
	} {
		for _, fn := range []function{ctxSetCurrent, launchKernel, memHostAlloc, memcpyHtoDAsync, memcpyDtoHAsync, streamSynchronize} {
			q := newQueue(t, dev)
			f.fail = map[function]result{fn: code}
			q.Do(kernels.Fill(x, 8, 1))
			q.Write(x, make([]byte, 32))
			got := []byte{1, 2, 3, 4}
			q.Read(got, x.Slice(0, 1))
			first := q.Sync()
			f.fail = nil
			wantSticky(t, q, want, code)
			if first == nil || !strings.Contains(first.Error(), fn.String()) || !strings.Contains(first.Error(), "cuda:0") {
				t.Errorf("%v fails: %v", fn, first)
			}
			if !slices.Equal(got, []byte{1, 2, 3, 4}) {
				t.Errorf("%v fails, and a read gives %v", fn, got)
			}
			if err := q.Close(); err == nil {
				t.Error("Close forgets the error")
			}
		}
	}
}

func TestOutOfMemory(t *testing.T) {
	f := newFake(t, &plain{}, 1)
	dev := openFake(t, 0)
	in, out, q := newBuffer(t, dev, kernels.F32, 100), newBuffer(t, dev, kernels.F32, 10), newQueue(t, dev)
	blocks := len(f.blocks)
	for _, fn := range []function{memAlloc, memsetD8Async, streamSynchronize} {
		f.fail = map[function]result{fn: outOfMemory}
		if _, err := dev.Alloc(kernels.F32, 8); !errors.Is(err, kernels.ErrOutOfMemory) || !strings.Contains(err.Error(), "alloc of 32 bytes") {
			t.Errorf("%v: %v", fn, err)
		}
		f.fail = nil
		if len(f.blocks) != blocks {
			t.Errorf("%v fails, and memory is left", fn)
		}
	}
	f.fail = map[function]result{memAlloc: outOfMemory}
	q.Do(kernels.ColumnSum(out, in, 10, 10, 0)) // has scratch memory
	f.fail = nil
	wantSticky(t, q, kernels.ErrOutOfMemory, outOfMemory)
	_ = q.Close() // gives the same error again
}

// TestStartFails lets each step of opening a card fail, and wants the context given back.
func TestStartFails(t *testing.T) {
	f := newFake(t, &plain{}, 1)
	list := fakeCards(t)
	for fn, code := range map[function]result{
		primaryCtxSetFlags: deviceUnavailable, primaryCtxRetain: outOfMemory, ctxSetCurrent: invalidContext, streamCreate: outOfMemory,
		moduleLoadDataEx: unsupportedPTX, moduleGetFunction: notFound,
	} {
		f.fail = map[function]result{fn: code}
		_, err := list[0].Open()
		f.fail = nil
		if err == nil || !strings.Contains(err.Error(), code.String()) {
			t.Errorf("%v fails: %v", fn, err)
		}
		if f.retained[contextBase] != 0 || len(f.modules) != 0 && fn != ctxSetCurrent {
			t.Errorf("%v fails: %d contexts and %d modules are left", fn, f.retained[contextBase], len(f.modules))
		}
	}
	f.fail = map[function]result{initialize: driverMismatch}
	if _, err := fakeLibrary().list(); err == nil || !strings.Contains(err.Error(), "restart the machine") {
		t.Errorf("the driver does not start: %v", err)
	}
}

// TestBadPTX wants what the driver's compiler says.
func TestBadPTX(t *testing.T) {
	newFake(t, &plain{}, 1)
	dev := openFake(t, 0)
	err := dev.driver.do(func() error {
		_, err := dev.driver.lib.loadModule([]byte(".version 6.0\n.nonsense\n"))
		return err
	})
	if err == nil || !strings.Contains(err.Error(), invalidPTX.String()) || !strings.Contains(err.Error(), "no kernels in line 1") {
		t.Errorf("bad PTX: %v", err)
	}
}

// TestKernelOfOtherParameters: what the PTX does not take is not launched.
func TestKernelOfOtherParameters(t *testing.T) {
	newFake(t, &plain{}, 1)
	dev := openFake(t, 0)
	s, err := dev.driver.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	for want, l := range map[string]gpu.Launch{
		"no such kernel":       {Kernel: "nothing"},
		"takes 28":             {Kernel: "fill", Params: []gpu.Param{{Bytes: 8}}},
		"at most 65535 in the": {Kernel: "fill", Groups: [3]int{1, 1 << 16, 1}},
	} {
		if err := s.Execute([]gpu.Launch{l}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", l.Kernel, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestClosed: a closed card gives its context back once, and takes no more calls.
func TestClosed(t *testing.T) {
	f := newFake(t, &plain{}, 1)
	dev := openFake(t, 0)
	x, q := newBuffer(t, dev, kernels.F32, 8), newQueue(t, dev)
	if err := dev.Close(); err != nil {
		t.Fatal(err)
	}
	if f.retained[contextBase] != 0 || len(f.modules) != 0 {
		t.Errorf("%d contexts and %d modules are left", f.retained[contextBase], len(f.modules))
	}
	made := len(f.calls)
	q.Do(kernels.Fill(x, 8, 1))
	if err := q.Close(); !errors.Is(err, gpu.ErrClosed) {
		t.Errorf("a call on a closed device: %v", err)
	}
	if _, err := dev.NewQueue(); !errors.Is(err, gpu.ErrClosed) {
		t.Errorf("a queue of a closed device: %v", err)
	}
	x.Buf.Free()
	if len(f.calls) != made {
		t.Errorf("the driver is called after: %v", f.calls[made:])
	}
}
