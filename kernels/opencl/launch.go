package opencl

import (
	"fmt"
	"unsafe"

	"pnode/kernels/gpu"
)

// execute enqueues the launches of the queue's plan.
func (q *queue) execute() error {
	if err := q.reserve(q.plan.ScratchFloats); err != nil {
		return err
	}
	q.dev.mu.Lock()
	defer q.dev.mu.Unlock()
	if q.dev.closed {
		return errClosed
	}
	for i := range q.plan.Launches {
		if err := q.launch(&q.plan.Launches[i]); err != nil {
			return err
		}
	}
	return nil
}

// reserve makes the scratch memory hold n floats. Launches that use the old one keep it.
func (q *queue) reserve(n int) error {
	if n <= q.floats {
		return nil
	}
	mem, err := q.dev.memory(4 * n)
	if err != nil {
		return err
	}
	old := q.scratch
	q.scratch, q.floats = mem, n
	return q.dev.lib.release(resource{releaseMemObject, old})
}

func (q *queue) launch(l *gpu.Launch) error {
	kernel, ok := q.dev.program.kernels[l.Kernel]
	if !ok {
		return fmt.Errorf("opencl: the source has no kernel %s", l.Kernel)
	}
	if err := q.setArgs(kernel, l.Args); err != nil {
		return fmt.Errorf("%s: %w", l.Kernel, err)
	}
	global, local := &q.sizes[0], &q.sizes[1]
	*local = [3]uintptr{uintptr(l.Items[0]), uintptr(l.Items[1]), 1}
	for k, groups := range l.Groups {
		global[k] = uintptr(groups) * local[k]
	}
	q.words = [9]uintptr{q.handle, kernel, uintptr(len(global)), 0, uintptr(unsafe.Pointer(global)), uintptr(unsafe.Pointer(local))}
	if s := q.dev.lib.call(enqueueNDRangeKernel, q.words[:]...); s != success {
		return fmt.Errorf("%s: %w", l.Kernel, s.err(enqueueNDRangeKernel))
	}
	return nil
}

// setArgs sets the parameters of a kernel: two for memory, else one.
func (q *queue) setArgs(kernel uintptr, args []gpu.Arg) error {
	const word, long = 4, 8
	next := uintptr(0)
	var s status
	set := func(size uintptr, value uint64) {
		if s == success {
			q.value = value
			q.words = [9]uintptr{kernel, next, size, uintptr(unsafe.Pointer(&q.value))}
			s = q.dev.lib.call(setKernelArg, q.words[:4]...)
			next++
		}
	}
	for _, a := range args {
		switch a.Kind {
		case gpu.Memory:
			var mem uintptr
			if a.View.Present() {
				mem = a.View.Buf.(*buffer).mem
			}
			set(unsafe.Sizeof(mem), uint64(mem))
			set(long, uint64(a.View.Off))
		case gpu.Scratch:
			set(unsafe.Sizeof(q.scratch), uint64(q.scratch))
			set(long, a.Bits)
		case gpu.Fault:
			set(unsafe.Sizeof(q.fault), uint64(q.fault))
		case gpu.Word:
			set(word, a.Bits)
		case gpu.Long:
			set(long, a.Bits)
		}
	}
	return s.err(setKernelArg)
}
