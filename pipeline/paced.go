package pipeline

import (
	"context"
	"time"

	"pnode/pipeline/collective"
	"pnode/pipeline/wire"
	"pnode/planner"
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
func (p paced) Receive(ctx context.Context, from planner.PeerID, tag wire.Tag) ([]byte, error) {
	begin := time.Now()
	payload, err := p.Exchange.Receive(ctx, from, tag)
	if end := time.Now(); end.Sub(begin) > atOnce {
		p.device.Waited(end)
	}
	return payload, err
}
