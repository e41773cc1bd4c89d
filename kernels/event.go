package kernels

import "time"

// Event is a place in what a queue was given: it comes when the queue has done everything before
// it. Queue.Record makes one, Queue.Wait orders another queue of the device behind it. Its methods
// may be called from any goroutine, until the queue is closed.
type Event interface {
	// Sync waits for the event on the host and returns the error of what is before it. The
	// memory of the host that copies use is the program's again after Queue.Sync only.
	Sync() error
	// Time is when the event came, by the host's clock, once Sync has returned: as the device
	// tells, or else when the first Sync noticed it.
	Time() time.Time
}

// Passed is the Event of a queue that has done everything when it records one.
type Passed struct {
	Err error // of the queue
	At  time.Time
}

// Sync returns at once.
func (p Passed) Sync() error { return p.Err }

// Time is when the event was recorded.
func (p Passed) Time() time.Time { return p.At }
