package opencl

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"unsafe"

	"pnode/kernels"
	"pnode/kernels/conform"
	"pnode/kernels/gpu"
)

// Device is an OpenCL device as a kernels.Device.
type Device struct {
	Info

	context, fills uintptr // fills: the command queue that clears new buffers

	mu      sync.Mutex // guards all below, and a kernel's arguments until it is enqueued
	program program
	closed  bool
}

var errClosed = errors.New("opencl: device is closed")

// Open makes the device ready: it builds the kernels for the best geometry that the driver
// accepts, and runs them against the reference. The error says what is wrong with the device.
// It takes as long as the driver's compiler, which is seconds where it has nothing in store.
func (i Info) Open() (dev *Device, err error) {
	if i.Unusable != "" {
		return nil, fmt.Errorf("opencl: %s: %s", i.Name, i.Unusable)
	}
	guardSignals(func() { dev, err = i.open() })
	if err != nil {
		return nil, fmt.Errorf("opencl: %s: %w", i.Name, err)
	}
	return dev, nil
}

func (i Info) open() (*Device, error) {
	d := &Device{Info: i}
	err := d.start()
	if err == nil {
		err = conform.SelfTest(d)
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Device) start() (err error) {
	var s status
	d.context = d.lib.create(createContext, 0, 1, uintptr(unsafe.Pointer(&d.id)), 0, 0, uintptr(unsafe.Pointer(&s)))
	if s != success {
		return s.err(createContext)
	}
	if d.fills, err = d.commandQueue(); err != nil {
		return err
	}
	d.program, err = d.build()
	return err
}

func (d *Device) commandQueue() (uintptr, error) {
	var s status
	handle := d.lib.create(createCommandQueue, d.context, d.id, 0, uintptr(unsafe.Pointer(&s)))
	return handle, s.err(createCommandQueue)
}

// Name is `opencl:0` and so on.
func (d *Device) Name() string { return fmt.Sprintf("opencl:%d", d.Index) }

// Geometry is the shape of the work-groups in use.
func (d *Device) Geometry() gpu.Geometry { return d.program.geometry }

// Alloc gives a zeroed buffer.
func (d *Device) Alloc(dtype kernels.DType, count int) (kernels.Buffer, error) {
	if count < 0 || count > math.MaxInt/dtype.SizeBytes() {
		return nil, fmt.Errorf("%w: opencl: alloc of %d elements", kernels.ErrBadCall, count)
	}
	bytes := count * dtype.SizeBytes()
	mem, err := d.memory(bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: alloc of %d bytes: %w", d.Name(), bytes, err)
	}
	return &buffer{dev: d, dtype: dtype, count: count, mem: mem}, nil
}

// Supports checks the operands of c against the table, that they are live buffers of this
// device, and that there are kernels for the sizes.
func (d *Device) Supports(c kernels.Call) error {
	if err := c.Check(); err != nil {
		return fmt.Errorf("opencl: %w", err)
	}
	for _, v := range c.Args {
		if !v.Present() {
			continue
		}
		if err := d.owns(v); err != nil {
			return fmt.Errorf("%w: %v", err, c)
		}
	}
	return gpu.Supports(c)
}

// NewQueue gives a queue; any number may be used at the same time.
func (d *Device) NewQueue() (kernels.Queue, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, errClosed
	}
	return d.newQueue()
}

// Close gives back what Open made. Queues and buffers are closed and freed by themselves.
func (d *Device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	d.program.release()
	var errs []error
	for _, r := range []resource{{releaseCommandQueue, d.fills}, {releaseContext, d.context}} {
		errs = append(errs, d.lib.release(r))
	}
	return errors.Join(errs...)
}

// resource is a handle with the function that gives it back.
type resource struct {
	by     function
	handle uintptr // 0 for what was never made
}

func (l *library) release(r resource) error {
	if r.handle == 0 {
		return nil
	}
	return l.call(r.by, r.handle).err(r.by)
}
