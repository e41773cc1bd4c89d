package replay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"pnode/pipeline/collective"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// Source returns what a living peer sent to the lost ones in a step. It is called once for a step and a peer, and
// returns soon after ctx ends.
type Source func(ctx context.Context, from plan.PeerID, step plan.Step) ([]Message, error)

// Frames are the messages of the steps that lost workers compute again. They are brought one step ahead of the
// newest that a worker has asked for.
type Frames struct {
	ctx          context.Context // of all that is fetched
	living, lost []plan.PeerID
	source       Source
	last         plan.Step // nothing after it is asked for

	between *collective.Memory // the lost

	mu    sync.Mutex // guards steps
	steps map[plan.Step]*brought
}

// address names one message.
type address struct {
	from, to plan.PeerID
	tag      wire.Tag
}

// brought is one step's messages, once done is closed.
type brought struct {
	done   chan struct{}
	err    error
	frames map[address][]byte // guarded by Frames.mu once done is closed
}

// NewFrames returns the messages that living peers sent to lost ones in the steps up to last. They are fetched until
// ctx ends.
func NewFrames(ctx context.Context, living, lost []plan.PeerID, last plan.Step, source Source) *Frames {
	return &Frames{
		ctx: ctx, living: living, lost: lost, source: source, last: last,
		between: collective.NewMemory(), steps: map[plan.Step]*brought{},
	}
}

// For returns the exchange of a lost peer's workers.
func (f *Frames) For(self plan.PeerID) collective.Exchange { return exchange{f, f.between.End(self)} }

// bring returns a step's messages, which it begins to fetch where nobody has; nil after the last step.
func (f *Frames) bring(step plan.Step) *brought {
	f.mu.Lock()
	defer f.mu.Unlock()
	if b := f.steps[step]; b != nil || step > f.last {
		return b
	}
	b := &brought{done: make(chan struct{}), frames: map[address][]byte{}}
	f.steps[step] = b
	go func() { // ends with its sources
		defer close(b.done)
		b.err = f.fetch(step, b.frames)
	}()
	return b
}

// fetch asks all living peers at once.
func (f *Frames) fetch(step plan.Step, into map[address][]byte) error {
	var wait sync.WaitGroup
	var mu sync.Mutex // guards into and errs
	var errs []error
	for _, peer := range f.living {
		wait.Go(func() {
			messages, err := f.source(f.ctx, peer, step)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, fmt.Errorf("what %s sent in step %d: %w", peer.Short(), step, err))
			}
			for _, m := range messages {
				into[address{peer, m.To, m.Frame.Tag}] = m.Frame.Payload
			}
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}

// exchange is the exchange of one lost peer's workers.
type exchange struct {
	*Frames
	end collective.MemoryEnd
}

// Send hands a message to a lost worker; the living had theirs.
func (e exchange) Send(ctx context.Context, to plan.PeerID, f wire.Frame) error {
	if !slices.Contains(e.lost, to) {
		return nil
	}
	return e.end.Send(ctx, to, f)
}

// Receive returns a message as it was sent the first time. The error wraps ErrNotKept where it is not there.
func (e exchange) Receive(ctx context.Context, from plan.PeerID, tag wire.Tag) ([]byte, error) {
	if slices.Contains(e.lost, from) {
		return e.end.Receive(ctx, from, tag)
	}
	at := address{from, e.end.Self, tag}
	b := e.bring(tag.Step)
	e.bring(tag.Step + 1)
	if b == nil {
		return nil, fmt.Errorf("%w: %v is of a step after the last", ErrNotKept, tag)
	}
	select {
	case <-b.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if b.err != nil {
		return nil, b.err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	payload, ok := b.frames[at]
	if !ok {
		return nil, fmt.Errorf("%w: %v from %s", ErrNotKept, tag, from.Short())
	}
	delete(b.frames, at)
	return payload, nil
}
