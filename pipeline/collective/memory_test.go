package collective

import (
	"context"
	"fmt"
	"sync"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// slot is where one message between two peers is handed over.
type slot struct {
	from, to plan.PeerID
	tag      wire.Tag
}

// memory is a network in memory: a message waits in its slot until it is received, a
// second message for the same slot is an error.
type memory struct {
	mu    sync.Mutex // guards slots
	slots map[slot]chan []byte
	sent  int
}

func newMemory() *memory { return &memory{slots: map[slot]chan []byte{}} }

func (m *memory) slot(s slot) chan []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.slots[s] == nil {
		m.slots[s] = make(chan []byte, 1)
	}
	return m.slots[s]
}

// member is one peer's view of the network.
type member struct {
	*memory
	self plan.PeerID
}

func (m member) Send(_ context.Context, to plan.PeerID, f wire.Frame) error {
	if err := f.Tag.Validate(); err != nil {
		return err
	}
	select {
	case m.slot(slot{m.self, to, f.Tag}) <- f.Payload:
		m.mu.Lock()
		m.sent += len(f.Payload)
		m.mu.Unlock()
		return nil
	default:
		return fmt.Errorf("%v to %s was sent before", f.Tag, to)
	}
}

func (m member) Receive(ctx context.Context, from plan.PeerID, tag wire.Tag) ([]byte, error) {
	select {
	case b := <-m.slot(slot{from, m.self, tag}):
		return b, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
