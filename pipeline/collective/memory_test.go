package collective

import (
	"context"
	"sync/atomic"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// counted is a peer's end of a memory, of whose messages the bytes are counted.
type counted struct {
	MemoryEnd
	sent *atomic.Int64
}

func (c counted) Send(ctx context.Context, to plan.PeerID, f wire.Frame) error {
	if err := f.Tag.Validate(); err != nil {
		return err
	}
	c.sent.Add(int64(len(f.Payload)))
	return c.MemoryEnd.Send(ctx, to, f)
}
