package emulate

import (
	"fmt"
	"math"
	"time"

	"pnode/kernels"
)

// DefaultSlack is the slack of a device whose program does not tell what it waits for: more
// than timers are late on a busy machine, less than what a network makes a program wait.
const DefaultSlack = time.Millisecond

// PacedSlack is the slack of a device whose program tells by Waited what it waits for: what
// else passes between calls is this machine's, not the emulated one's.
const PacedSlack = 50 * time.Millisecond

// MostPercent bounds how much slower a device gets.
const MostPercent = 100_000

// Options of a device.
type Options struct {
	// Name is unique on a node; empty is the wrapped device's.
	Name    string
	Profile Profile
	// Slack is how far the device's clock may lag behind real time and still make up for
	// it; 0 is DefaultSlack.
	Slack time.Duration
	// Changes are times from which on calls take longer than the profile says; the last one counts whose time has come.
	Changes []Change
}

// Change has calls take Percent of the profile's time, from After on since the device was opened.
type Change struct {
	After   time.Duration
	Percent int64
}

// Device is an emulated device.
type Device struct {
	inner   kernels.Device
	name    string
	profile Profile
	opened  time.Time
	changes []Change
	clock   clock
	// up and down are when the copies each way are done.
	up, down clock
	kernels.Budget
}

// New wraps a device, which is then the new one's to close. The error wraps ErrBadProfile.
func New(inner kernels.Device, o Options) (*Device, error) {
	if err := o.Profile.Validate(); err != nil {
		return nil, err
	}
	if o.Slack < 0 {
		return nil, fmt.Errorf("%w: Slack is %v: want 0 for the default, or more", ErrBadProfile, o.Slack)
	}
	if o.Slack == 0 {
		o.Slack = DefaultSlack
	}
	if o.Name == "" {
		o.Name = inner.Name()
	}
	for _, c := range o.Changes {
		if c.After < 0 || c.Percent < 1 || c.Percent > MostPercent {
			return nil, fmt.Errorf("%w: calls take %d%% after %v: want 1%% to %d%%, after 0 s or more", ErrBadProfile, c.Percent, c.After, MostPercent)
		}
	}
	d := &Device{inner: inner, name: o.Name, profile: o.Profile, opened: time.Now(), changes: o.Changes, clock: clock{slack: o.Slack}, up: clock{slack: o.Slack}, down: clock{slack: o.Slack}}
	d.LimitMemory(o.Profile.MemoryBytes)
	return d, nil
}

// duration returns how long a call takes that is enqueued now.
func (d *Device) duration(now time.Time, c kernels.Call) time.Duration {
	took := d.profile.Duration(c)
	for i := len(d.changes) - 1; i >= 0; i-- {
		if change := d.changes[i]; now.Sub(d.opened) >= change.After {
			return took * time.Duration(change.Percent) / 100
		}
	}
	return took
}

// Name returns the name in the options.
func (d *Device) Name() string { return d.name }

// Profile returns the figures that the device is made to have.
func (d *Device) Profile() Profile { return d.profile }

// Inner is the wrapped device.
func (d *Device) Inner() kernels.Device { return d.inner }

// Kind returns that of the device inside, whose bits these are.
func (d *Device) Kind() string { return kernels.KindOf(d.inner) }

// Distant reports whether copies take time.
func (d *Device) Distant() bool { return d.profile.CopyBytesPerS > 0 }

// Waited reports that the program waited until then for something from outside of the
// device: calls that it enqueues later start no earlier.
func (d *Device) Waited(until time.Time) {
	for _, c := range []*clock{&d.clock, &d.up, &d.down} {
		c.mu.Lock()
		if until.After(c.floor) {
			c.floor = until
		}
		c.mu.Unlock()
	}
}

// BusyTime is the emulated time of all calls so far.
func (d *Device) BusyTime() time.Duration {
	d.clock.mu.Lock()
	defer d.clock.mu.Unlock()
	return d.clock.busy
}

// Alloc gives a zeroed buffer while the profile's memory lasts, else ErrOutOfMemory.
func (d *Device) Alloc(dtype kernels.DType, count int) (kernels.Buffer, error) {
	if count < 0 || count > math.MaxInt/dtype.SizeBytes() {
		return nil, fmt.Errorf("%w: emulate: alloc of %d elements", kernels.ErrBadCall, count)
	}
	size := int64(count) * int64(dtype.SizeBytes())
	if err := d.Take(size); err != nil {
		return nil, fmt.Errorf("emulated %s (%s): %w", d.name, d.profile.Model, err)
	}
	inner, err := d.inner.Alloc(dtype, count)
	if err != nil {
		d.Give(size)
		return nil, err
	}
	return &buffer{Buffer: inner, dev: d, bytes: size}, nil
}

// Supports asks the wrapped device.
func (d *Device) Supports(c kernels.Call) error {
	c, err := d.lower(c)
	if err != nil {
		return err
	}
	return d.inner.Supports(c)
}

// NewQueue gives a queue; the calls of several take turns on the device.
func (d *Device) NewQueue() (kernels.Queue, error) {
	inner, err := d.inner.NewQueue()
	if err != nil {
		return nil, err
	}
	return &queue{dev: d, inner: inner}, nil
}

// Close closes the wrapped device.
func (d *Device) Close() error { return d.inner.Close() }

// buffer is memory of the wrapped device that is counted.
type buffer struct {
	kernels.Buffer
	dev   *Device
	bytes int64
	freed bool
}

// Free gives the memory back. A second Free does nothing.
func (b *buffer) Free() {
	if b.freed {
		return
	}
	b.freed = true
	b.Buffer.Free()
	b.dev.Give(b.bytes)
}

// lower gives the call on the wrapped device's buffers.
func (d *Device) lower(c kernels.Call) (kernels.Call, error) {
	for i, v := range c.Args {
		var err error
		if c.Args[i], err = d.lowerView(v); err != nil {
			return c, err
		}
	}
	return c, nil
}

func (d *Device) lowerView(v kernels.View) (kernels.View, error) {
	if !v.Present() {
		return v, nil
	}
	b, ok := v.Buf.(*buffer)
	switch {
	case !ok || b.dev != d:
		return v, fmt.Errorf("%w: %s: operand of another device", kernels.ErrBadCall, d.name)
	case b.freed:
		return v, fmt.Errorf("%w: %s: operand was freed", kernels.ErrBadCall, d.name)
	}
	v.Buf = b.Buffer
	return v, nil
}
