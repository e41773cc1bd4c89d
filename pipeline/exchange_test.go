package pipeline

import (
	"context"
	"sync"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// memoryNet joins workers in one process: every peer's Exchange delivers by (from, tag).
type memoryNet struct {
	mu      sync.Mutex // guards inboxes
	inboxes map[address]chan []byte
}

type address struct {
	from, to plan.PeerID
	tag      wire.Tag
}

func newMemoryNet() *memoryNet { return &memoryNet{inboxes: map[address]chan []byte{}} }

func (n *memoryNet) box(a address) chan []byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.inboxes[a] == nil {
		n.inboxes[a] = make(chan []byte, 1)
	}
	return n.inboxes[a]
}

func (n *memoryNet) empty(a address) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.inboxes, a)
}

// memoryExchange is one peer's end.
type memoryExchange struct {
	net  *memoryNet
	self plan.PeerID
}

func (e memoryExchange) Send(ctx context.Context, to plan.PeerID, f wire.Frame) error {
	select {
	case e.net.box(address{e.self, to, f.Tag}) <- f.Payload:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (e memoryExchange) Receive(ctx context.Context, from plan.PeerID, tag wire.Tag) ([]byte, error) {
	at := address{from, e.self, tag}
	select {
	case payload := <-e.net.box(at):
		e.net.empty(at) // a tag is used once
		return payload, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
