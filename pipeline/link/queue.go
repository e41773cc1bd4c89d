package link

import (
	"context"
	"io"
	"sync"

	"pnode/pipeline/wire"
)

// queue holds the frames of one peer and class until they are written. It is bounded in
// frames and in payload bytes; one frame always fits an empty queue.
type queue struct {
	maxFrames, maxBytes int

	mu       sync.Mutex // guards everything below
	frames   []wire.Frame
	bytes    int // payload bytes of frames and of those being written
	writing  int // frames being written
	draining bool
	err      error // why no frame is accepted any more
	changed  bell
}

// put waits for room.
func (q *queue) put(ctx context.Context, f wire.Frame) error {
	for {
		q.mu.Lock()
		if q.err != nil {
			q.mu.Unlock()
			return q.err
		}
		if q.fits(f) {
			q.push(f)
			q.mu.Unlock()
			return nil
		}
		changed := q.changed.wait()
		q.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// offerIdle puts f only when nothing else waits; it is for heartbeats, which are of no
// use behind other frames.
func (q *queue) offerIdle(f wire.Frame) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err == nil && len(q.frames) == 0 {
		q.push(f)
	}
}

func (q *queue) fits(f wire.Frame) bool {
	waiting := len(q.frames) + q.writing
	return waiting == 0 || waiting < q.maxFrames && q.bytes+len(f.Payload) <= q.maxBytes
}

func (q *queue) push(f wire.Frame) {
	q.frames = append(q.frames, f)
	q.bytes += len(f.Payload)
	q.changed.ring()
}

// take waits for the next frame; done has to follow it. After drain the end of the queue
// is io.EOF, after fail there are no frames any more.
func (q *queue) take() (wire.Frame, error) {
	for {
		q.mu.Lock()
		if len(q.frames) > 0 {
			f := q.frames[0]
			q.frames[0] = wire.Frame{}
			q.frames = q.frames[1:]
			q.writing++
			q.mu.Unlock()
			return f, nil
		}
		if q.err != nil {
			defer q.mu.Unlock()
			if q.draining {
				return wire.Frame{}, io.EOF
			}
			return wire.Frame{}, q.err
		}
		changed := q.changed.wait()
		q.mu.Unlock()
		<-changed
	}
}

// done gives the room of a taken frame back.
func (q *queue) done(f wire.Frame) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.writing--
	q.bytes -= len(f.Payload)
	q.changed.ring()
}

// drain accepts no more frames, for the reason err, and lets take have the rest.
func (q *queue) drain(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err == nil {
		q.err, q.draining = err, true
		q.changed.ring()
	}
}

// fail drops all frames and makes put and take fail with err.
func (q *queue) fail(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, f := range q.frames {
		q.bytes -= len(f.Payload)
	}
	q.frames, q.draining = nil, false
	if q.err == nil {
		q.err = err
	}
	q.changed.ring()
}
