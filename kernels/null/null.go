package null

import (
	"fmt"
	"sync"
	"time"

	"pnode/kernels"
)

// Count is the work of a number of calls.
type Count struct {
	Calls int64
	FLOPs int64
	Bytes int64 // least memory traffic of the calls, see kernels.OpInfo.Bytes
}

// Add is the sum of two counts.
func (c Count) Add(d Count) Count {
	return Count{Calls: c.Calls + d.Calls, FLOPs: c.FLOPs + d.FLOPs, Bytes: c.Bytes + d.Bytes}
}

// Device counts calls. The zero value is ready to use.
type Device struct {
	mu     sync.Mutex // guards byOp
	byOp   map[kernels.Op]Count
	budget kernels.Budget // without a limit
}

// New gives a device with all counts zero.
func New() *Device { return &Device{} }

// Name is `null`.
func (d *Device) Name() string { return "null" }

// Alloc gives a buffer without memory; it never fails for a valid dtype and count.
func (d *Device) Alloc(dtype kernels.DType, count int) (kernels.Buffer, error) {
	if count < 0 {
		return nil, fmt.Errorf("%w: null: alloc %d elements", kernels.ErrBadCall, count)
	}
	b := &buffer{dev: d, dtype: dtype, count: count}
	return b, d.budget.Take(b.sizeBytes())
}

// PeakBytes is the most memory that buffers held at one time.
func (d *Device) PeakBytes() int64 { return d.budget.PeakBytes() }

// Supports checks the operands against the table.
func (d *Device) Supports(c kernels.Call) error {
	if err := c.Check(); err != nil {
		return fmt.Errorf("null: %w", err)
	}
	return nil
}

// NewQueue gives a queue that counts into the device.
func (d *Device) NewQueue() (kernels.Queue, error) { return &queue{dev: d}, nil }

// Close does nothing.
func (d *Device) Close() error { return nil }

// ByOp returns the counts of one operation since New or Reset.
func (d *Device) ByOp(op kernels.Op) Count {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.byOp[op]
}

// ByClass returns the counts of the operations of one class.
func (d *Device) ByClass(class kernels.Class) Count {
	total := Count{}
	for _, op := range kernels.Ops() {
		if kernels.Info(op).Class == class {
			total = total.Add(d.ByOp(op))
		}
	}
	return total
}

// Total returns the counts of all operations.
func (d *Device) Total() Count {
	total := Count{}
	for _, op := range kernels.Ops() {
		total = total.Add(d.ByOp(op))
	}
	return total
}

// Reset sets the counts to zero; buffers stay.
func (d *Device) Reset() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.byOp = nil
}

type buffer struct {
	dev   *Device
	dtype kernels.DType
	count int
	freed bool
}

func (b *buffer) DType() kernels.DType { return b.dtype }
func (b *buffer) Len() int             { return b.count }
func (b *buffer) sizeBytes() int64     { return int64(b.count) * int64(b.dtype.SizeBytes()) }

func (b *buffer) Free() {
	if !b.freed {
		b.freed = true
		b.dev.budget.Give(b.sizeBytes())
	}
}

type queue struct {
	dev *Device
	err error
}

func (q *queue) Do(c kernels.Call) {
	if q.err != nil {
		return
	}
	if err := q.dev.Supports(c); err != nil {
		q.err = err
		return
	}
	info, d := kernels.Info(c.Op), q.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.byOp == nil {
		d.byOp = map[kernels.Op]Count{}
	}
	d.byOp[c.Op] = d.byOp[c.Op].Add(Count{Calls: 1, FLOPs: info.FLOPs(c), Bytes: info.Bytes(c)})
}

func (q *queue) Write(dst kernels.View, src []byte) { q.transfer("write", dst, len(src)) }

func (q *queue) Read(dst []byte, src kernels.View) {
	q.transfer("read", src, len(dst))
	clear(dst)
}

func (q *queue) transfer(what string, v kernels.View, bytes int) {
	if q.err != nil {
		return
	}
	if err := v.CheckTransfer(bytes); err != nil {
		q.err = fmt.Errorf("null: %s: %w", what, err)
	}
}

// Record gives an event that has come.
func (q *queue) Record() kernels.Event { return kernels.Passed{Err: q.err, At: time.Now()} }

func (q *queue) Wait(e kernels.Event) {
	if q.err == nil {
		q.err = e.Sync()
	}
}

func (q *queue) Sync() error  { return q.err }
func (q *queue) Close() error { return q.err }
