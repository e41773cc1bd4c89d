package emulate

import (
	"errors"
	"fmt"
	"time"

	"pnode/kernels"
)

// queue gives calls to the wrapped device at once and lets Sync wait for the emulated one.
type queue struct {
	dev   *Device
	inner kernels.Queue
	due   time.Time // when the emulated device is done with what there is, and begins with the next
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
	now := time.Now()
	q.due = q.dev.clock.enqueue(now, q.due, q.dev.duration(now, lowered))
	q.inner.Do(lowered)
}

// Write takes time of the way to the device, beside calls and what goes back.
func (q *queue) Write(dst kernels.View, src []byte) {
	if v, ok := q.view(dst); ok {
		q.copied(&q.dev.up, len(src))
		q.inner.Write(v, src)
	}
}

// Read takes time of the way back; what is read is there after Sync, as the contract says.
func (q *queue) Read(dst []byte, src kernels.View) {
	if v, ok := q.view(src); ok {
		q.copied(&q.dev.down, len(dst))
		q.inner.Read(dst, v)
	}
}

// copied counts the time of a copy where the device has memory of its own.
func (q *queue) copied(way *clock, bytes int) {
	if rate := q.dev.profile.CopyBytesPerS; rate > 0 {
		q.due = way.enqueue(time.Now(), q.due, perSecond(int64(bytes), rate))
	}
}

func (q *queue) view(v kernels.View) (kernels.View, bool) {
	if q.err != nil {
		return v, false
	}
	v, q.err = q.dev.lowerView(v)
	return v, q.err == nil
}

// event comes when both devices have come to it.
type event struct {
	inner kernels.Event
	due   time.Time // on the emulated one
	err   error     // of the queue
}

// Record gives an event for which the emulated device has to be waited for.
func (q *queue) Record() kernels.Event { return &event{q.inner.Record(), q.due, q.err} }

// Wait lets what follows begin behind the event on both devices.
func (q *queue) Wait(e kernels.Event) {
	if q.err != nil {
		return
	}
	of, ok := e.(*event)
	if !ok {
		q.err = fmt.Errorf("%w: %s: an event of another device", kernels.ErrBadCall, q.dev.name)
		return
	}
	if q.err = of.err; of.due.After(q.due) {
		q.due = of.due
	}
	q.inner.Wait(of.inner)
}

// Sync waits for both devices.
func (e *event) Sync() error {
	err := e.inner.Sync()
	if e.err != nil {
		return e.err
	}
	if err == nil {
		time.Sleep(time.Until(e.due)) // which may be over
	}
	return err
}

// Time is the later one.
func (e *event) Time() time.Time {
	if at := e.inner.Time(); at.After(e.due) {
		return at
	}
	return e.due
}

// Sync waits for both devices.
func (q *queue) Sync() error {
	if err := q.inner.Sync(); q.err == nil {
		q.err = err
	}
	if q.err == nil {
		time.Sleep(time.Until(q.due))
	}
	return q.err
}

// Close does not wait for the emulated device.
func (q *queue) Close() error { return errors.Join(q.err, q.inner.Close()) }
