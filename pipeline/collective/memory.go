package collective

import (
	"context"
	"fmt"
	"sync"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// Memory joins the workers of peers that are in one process: a message waits until it is received.
type Memory struct {
	mu    sync.Mutex // guards boxes
	boxes map[address]chan []byte
}

// address says whose message it is, and for whom. A tag is used once.
type address struct {
	from, to plan.PeerID
	tag      wire.Tag
}

// NewMemory returns one without messages.
func NewMemory() *Memory { return &Memory{boxes: map[address]chan []byte{}} }

// End returns a peer's end.
func (m *Memory) End(self plan.PeerID) MemoryEnd { return MemoryEnd{m, self} }

// box returns where a message waits.
func (m *Memory) box(a address) chan []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.boxes[a] == nil {
		m.boxes[a] = make(chan []byte, 1)
	}
	return m.boxes[a]
}

// MemoryEnd is the Exchange of one peer of a Memory.
type MemoryEnd struct {
	net  *Memory
	Self plan.PeerID
}

// Send never waits. It fails while a message of the same tag waits.
func (e MemoryEnd) Send(ctx context.Context, to plan.PeerID, f wire.Frame) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case e.net.box(address{e.Self, to, f.Tag}) <- f.Payload:
		return nil
	default:
		return fmt.Errorf("collective: %v to %s was sent before", f.Tag, to.Short())
	}
}

// Receive waits for a message. One that is there is returned even where ctx has ended.
func (e MemoryEnd) Receive(ctx context.Context, from plan.PeerID, tag wire.Tag) (payload []byte, err error) {
	at := address{from, e.Self, tag}
	box := e.net.box(at)
	select {
	case payload = <-box:
	default:
		select {
		case payload = <-box:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	delete(e.net.boxes, at)
	return payload, nil
}
