package gpu

import (
	"errors"
	"fmt"
	"math"

	"pnode/kernels"
)

// Device is a kernels.Device over a driver that has the kernels of Source.
type Device struct {
	driver   Driver
	geometry Geometry
	noF16    bool
	kernels.Budget
}

// NewDevice gives the device that a driver drives, whose kernels were built for geometry g.
// Buffers and scratch memory of all queues count in its budget.
func NewDevice(d Driver, g Geometry) *Device { return &Device{driver: d, geometry: g} }

// WithoutF16 has the device support nothing in F16 from now on: its results there are wrong.
func (d *Device) WithoutF16() { d.noF16 = true }

// Name returns the driver's name of the device.
func (d *Device) Name() string { return d.driver.Name() }

// Distant is true: copies run beside kernels.
func (d *Device) Distant() bool { return true }

// Geometry is the shape of the work-groups in use.
func (d *Device) Geometry() Geometry { return d.geometry }

// Close gives back what the driver holds. Buffers and queues may be freed and closed later.
func (d *Device) Close() error { return d.driver.Close() }

// Alloc gives a zeroed buffer.
func (d *Device) Alloc(dtype kernels.DType, count int) (kernels.Buffer, error) {
	if count < 0 || count > math.MaxInt/dtype.SizeBytes() {
		return nil, fmt.Errorf("%w: %s: alloc of %d elements", kernels.ErrBadCall, d.Name(), count)
	}
	b := &buffer{dev: d, dtype: dtype, count: count}
	if err := b.take(count * dtype.SizeBytes()); err != nil {
		return nil, err
	}
	return b, nil
}

// Supports checks the operands of c against the table, that they are live buffers of this
// device, and that there are kernels for the sizes.
func (d *Device) Supports(c kernels.Call) error {
	if err := c.Check(); err != nil {
		return fmt.Errorf("%s: %w", d.Name(), err)
	}
	for _, v := range c.Args {
		if !v.Present() {
			continue
		}
		if err := d.owns(v); err != nil {
			return fmt.Errorf("%w: %v", err, c)
		}
		if d.noF16 && v.Buf.DType() == kernels.F16 {
			return fmt.Errorf("%w: %v: %s computes wrong in f16", kernels.ErrUnsupported, c, d.Name())
		}
	}
	return Supports(c)
}

// NewQueue gives a queue; any number may be used at the same time.
func (d *Device) NewQueue() (kernels.Queue, error) {
	stream, err := d.driver.NewStream()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.Name(), err)
	}
	q := &queue{dev: d, stream: stream, fault: buffer{dev: d}, scratch: buffer{dev: d}, plan: Plan{Geometry: d.geometry}}
	if err := q.fault.take(faultBytes); err != nil {
		return nil, errors.Join(err, stream.Close())
	}
	return q, nil
}
