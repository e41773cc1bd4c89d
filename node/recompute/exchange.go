package recompute

import (
	"context"
	"sync"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// network joins the workers of a plan in one process.
type network struct {
	mu    sync.Mutex // guards boxes
	boxes map[address]chan []byte
}

// address says whose message it is, and for whom. A tag is used once.
type address struct {
	from, to plan.PeerID
	tag      wire.Tag
}

func (n *network) box(a address) chan []byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.boxes[a] == nil {
		n.boxes[a] = make(chan []byte, 1)
	}
	return n.boxes[a]
}

// exchange is a peer's end of a network. It implements collective.Exchange.
type exchange struct {
	*network
	self plan.PeerID
}

// Send never waits.
func (e exchange) Send(ctx context.Context, to plan.PeerID, f wire.Frame) error {
	select {
	case e.box(address{e.self, to, f.Tag}) <- f.Payload:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Receive waits for a message.
func (e exchange) Receive(ctx context.Context, from plan.PeerID, tag wire.Tag) ([]byte, error) {
	at := address{from, e.self, tag}
	select {
	case payload := <-e.box(at):
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.boxes, at)
		return payload, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
