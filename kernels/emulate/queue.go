package emulate

import (
	"errors"
	"time"

	"pnode/kernels"
)

// queue gives calls to the wrapped device at once and lets Sync wait for the emulated one.
type queue struct {
	dev   *Device
	inner kernels.Queue
	due   time.Time // when the last call ends on the emulated device
	err   error
}

// Do counts the call's time from now on, the wrapped device's own included: what that
// computes meanwhile is hidden in the time that the emulated one takes.
func (q *queue) Do(c kernels.Call) {
	if q.err != nil {
		return
	}
	lowered, err := q.dev.lower(c)
	if err == nil {
		err = q.dev.inner.Supports(lowered)
	}
	if err != nil {
		q.err = err
		return
	}
	q.due = q.dev.clock.enqueue(time.Now(), q.dev.profile.Duration(lowered))
	q.inner.Do(lowered)
}

// Write takes no emulated time.
func (q *queue) Write(dst kernels.View, src []byte) {
	if v, ok := q.view(dst); ok {
		q.inner.Write(v, src)
	}
}

// Read takes no emulated time; what is read is there after Sync, as the contract says.
func (q *queue) Read(dst []byte, src kernels.View) {
	if v, ok := q.view(src); ok {
		q.inner.Read(dst, v)
	}
}

func (q *queue) view(v kernels.View) (kernels.View, bool) {
	if q.err != nil {
		return v, false
	}
	v, q.err = q.dev.lowerView(v)
	return v, q.err == nil
}

// Sync waits for both devices.
func (q *queue) Sync() error {
	if err := q.inner.Sync(); q.err == nil {
		q.err = err
	}
	if wait := time.Until(q.due); wait > 0 && q.err == nil {
		time.Sleep(wait)
	}
	return q.err
}

// Close does not wait for the emulated device.
func (q *queue) Close() error { return errors.Join(q.err, q.inner.Close()) }
