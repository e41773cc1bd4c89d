package opencl

import (
	"fmt"
	"runtime"
	"unsafe"

	"pnode/kernels/gpu"
)

// stream is an in-order command queue.
type stream struct {
	driver *driver
	handle uintptr

	// What launches pass to OpenCL: the arguments of its function, and what these point to, in
	// the memory of the stream, so that a call allocates none.
	words [9]uintptr
	value uint64        // the argument of a kernel
	sizes [2][3]uintptr // work-items of the grid and of a group

	pins runtime.Pinner // host memory of transfers under way
}

// NewStream gives a command queue.
func (d *driver) NewStream() (gpu.Stream, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, gpu.ErrClosed
	}
	handle, err := d.commandQueue()
	if err != nil {
		return nil, err
	}
	return &stream{driver: d, handle: handle}, nil
}

// Prepare has nothing to take.
func (s *stream) Prepare([]gpu.Launch) error { return nil }

// Execute enqueues launches.
func (s *stream) Execute(launches []gpu.Launch) error {
	s.driver.mu.Lock()
	defer s.driver.mu.Unlock()
	if s.driver.closed {
		return gpu.ErrClosed
	}
	for i := range launches {
		if err := s.launch(&launches[i]); err != nil {
			return fmt.Errorf("%s: %w", launches[i].Kernel, err)
		}
	}
	return nil
}

func (s *stream) launch(l *gpu.Launch) error {
	kernel, ok := s.driver.program.kernels[l.Kernel]
	if !ok {
		return fmt.Errorf("opencl: the source has no such kernel")
	}
	for k, p := range l.Params {
		s.value = p.Bits
		s.words = [9]uintptr{kernel, uintptr(k), uintptr(p.Bytes), uintptr(unsafe.Pointer(&s.value))}
		if code := s.driver.lib.call(setKernelArg, s.words[:4]...); code != success {
			return code.err(setKernelArg)
		}
	}
	global, local := &s.sizes[0], &s.sizes[1]
	*local = [3]uintptr{uintptr(l.Items[0]), uintptr(l.Items[1]), 1}
	for k, groups := range l.Groups {
		global[k] = uintptr(groups) * local[k]
	}
	s.words = [9]uintptr{s.handle, kernel, uintptr(len(global)), 0, uintptr(unsafe.Pointer(global)), uintptr(unsafe.Pointer(local))}
	return s.driver.lib.call(enqueueNDRangeKernel, s.words[:]...).err(enqueueNDRangeKernel)
}

func (s *stream) Write(to gpu.Memory, at int, from []byte) error {
	return s.transfer(enqueueWriteBuffer, to, at, from)
}

func (s *stream) Read(to []byte, from gpu.Memory, at int) error {
	return s.transfer(enqueueReadBuffer, from, at, to)
}

// transfer enqueues a copy between device memory and host memory, which is pinned until Sync.
func (s *stream) transfer(f function, m gpu.Memory, at int, host []byte) error {
	memory := unsafe.SliceData(host)
	s.pins.Pin(memory)
	return s.driver.lib.call(f, s.handle, uintptr(m), 0, uintptr(at), uintptr(len(host)), uintptr(unsafe.Pointer(memory)), 0, 0, 0).err(f)
}

// Sync waits for everything that was enqueued.
func (s *stream) Sync() error {
	code := s.driver.lib.call(finish, s.handle)
	s.pins.Unpin()
	return code.err(finish)
}

// Close gives the command queue back.
func (s *stream) Close() error { return s.driver.lib.release(releaseCommandQueue, s.handle) }
