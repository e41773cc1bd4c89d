package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"pnode/kernels"
	"pnode/kernels/gpu"
)

// driver is a card as a gpu.Driver. Memory is an address on the card.
type driver struct {
	Info

	// What start makes and Close gives back; read within do.
	context [1]uintptr // as the arguments of a call, which so allocates none
	fills   uintptr    // the stream that clears new memory
	module  module
	blas    *blas // nil where products are the package's own
	budget  *kernels.Budget
	freed   atomic.Int64 // how often memory was given back
	plain   bool         // without graphs, as their results are wrong

	mu     sync.RWMutex // guards closed; held for reading while the context is in use
	closed bool
}

// streamNonBlocking makes a stream that does not wait for the default one, which nobody uses.
const streamNonBlocking = 1

// start takes the primary context, which other libraries in the process share, and loads the
// kernels.
func (d *driver) start() error {
	// A waiting thread sleeps: the node has other work for the processor.
	const blockingSync = 4
	if r := d.lib.call(primaryCtxSetFlags, d.device, blockingSync); r != success && r != primaryCtxActive {
		return r.err(primaryCtxSetFlags)
	}
	if err := d.lib.check(primaryCtxRetain, uintptr(unsafe.Pointer(&d.context)), d.device); err != nil {
		return err
	}
	text, err := d.build().ptx()
	if err != nil {
		return err
	}
	return d.do(func() error {
		if err := d.lib.check(streamCreate, uintptr(unsafe.Pointer(&d.fills)), streamNonBlocking); err != nil {
			return err
		}
		d.module, err = d.lib.loadModule(text)
		return err
	})
}

// blasHalves returns the halves that cuBLASLt multiplies on the card: its matrix units know them.
func (i Info) blasHalves() []kernels.DType {
	if i.build().geometry.Multiplies(kernels.BF16) {
		return []kernels.DType{kernels.BF16, kernels.F16}
	}
	return []kernels.DType{kernels.F16}
}

// startBLAS has cuBLASLt multiply those halves that it may, if any, where the card has matrix units.
func (d *driver) startBLAS(may func(kernels.DType) bool) error {
	if d.loadBLAS == nil || d.Compute < oldestUnits {
		return errNoBLAS
	}
	lib, err := d.loadBLAS()
	if err != nil {
		return err
	}
	halves := slices.DeleteFunc(d.blasHalves(), func(half kernels.DType) bool { return !may(half) })
	if len(halves) == 0 {
		return nil
	}
	return d.do(func() error {
		b := &blas{lib: lib, halves: halves, products: map[shape]*product{}}
		if err := lib.check(blasCreate, uintptr(unsafe.Pointer(&b.handle))); err != nil {
			return err
		}
		d.blas = b
		return nil
	})
}

// do calls f on a thread whose context is the card's. The card is not closed meanwhile.
func (d *driver) do(f func() error) error {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.closed {
		return gpu.ErrClosed
	}
	return d.within(f)
}

// within is do for the one who holds the lock.
func (d *driver) within(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := d.lib.check(ctxSetCurrent, d.context[:]...); err != nil {
		return err
	}
	return f()
}

// Name is `cuda:0` and so on.
func (d *driver) Name() string { return fmt.Sprintf("cuda:%d", d.Index) }

// Alloc gives cleared memory.
func (d *driver) Alloc(bytes int) (m gpu.Memory, err error) {
	err = d.do(func() error {
		var address uintptr
		if err := d.lib.check(memAlloc, uintptr(unsafe.Pointer(&address)), uintptr(bytes)); err != nil {
			return err
		}
		err := d.lib.check(memsetD8Async, address, 0, uintptr(bytes), d.fills)
		if err == nil {
			err = d.lib.check(streamSynchronize, d.fills)
		}
		if err != nil {
			return errors.Join(err, d.lib.check(memFree, address))
		}
		m = gpu.Memory(address)
		return nil
	})
	return m, err
}

// Free gives memory back; the driver waits for what uses it.
func (d *driver) Free(m gpu.Memory) error {
	d.freed.Add(1)
	return d.do(func() error { return d.lib.check(memFree, uintptr(m)) })
}

// Close gives the card back, with all memory and streams that are left.
func (d *driver) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || d.context[0] == 0 {
		d.closed = true
		return nil
	}
	d.closed = true
	err := d.within(func() error {
		var err error
		if d.blas != nil {
			err = d.blas.close()
		}
		return errors.Join(err, d.lib.release(moduleUnload, d.module.handle), d.lib.release(streamDestroy, d.fills))
	})
	return errors.Join(err, d.lib.check(primaryCtxRelease, d.device))
}
