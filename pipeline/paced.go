package pipeline

import (
	"context"
	"time"

	"pnode/pipeline/collective"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// Waiter is told until when a program waited for something that is not the device's;
// emulate.Device is one.
type Waiter interface{ Waited(until time.Time) }

// Paced is an exchange that tells a device of the waits for messages, so that its clock
// knows them from the time that this machine takes between two calls.
func Paced(e collective.Exchange, d Waiter) collective.Exchange { return paced{e, d} }

type paced struct {
	collective.Exchange
	device Waiter
}

// atOnce is what receiving takes when the message has come before it is asked for.
const atOnce = 200 * time.Microsecond

// Receive counts as a wait unless the message was there.
func (p paced) Receive(ctx context.Context, from plan.PeerID, tag wire.Tag) ([]byte, error) {
	defer p.waited(time.Now())
	return p.Exchange.Receive(ctx, from, tag)
}

// waited tells the device of a wait that began then and ends now.
func (p paced) waited(begin time.Time) {
	if end := time.Now(); end.Sub(begin) > atOnce {
		p.device.Waited(end)
	}
}

// unpaced is an exchange for messages that are fetched before the program waits for them.
func unpaced(e collective.Exchange) collective.Exchange {
	if p, ok := e.(paced); ok {
		return p.Exchange
	}
	return e
}

// waited tells of a wait for a message that was fetched beside the program.
func (w *Worker) waited(begin time.Time) {
	if p, ok := w.cfg.Exchange.(paced); ok {
		p.waited(begin)
	}
}
