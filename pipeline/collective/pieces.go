package collective

import (
	"context"
	"fmt"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

const (
	// A vector goes in pieces, so that its elements are added and sent on while later ones are still coming. usualPieces make what is
	// not overlapped, one of them each way, small beside the vector. Of fewer elements than leastPiece a message takes more than it brings.
	usualPieces = 16
	leastPiece  = 1 << 14
	// mostPiece is half of what a link takes.
	mostPiece = wire.MaxTensorBytes / 2 / 4
	// maxPieces are of all vectors that have the same tag.
	maxPieces = 1 << 10
)

// pieces is how many elements of a vector go in one message, 0 for as many as its length says.
type pieces int

// size returns how many elements a piece of n has.
func (p pieces) size(n int) int {
	if p > 0 {
		return int(p)
	}
	return min(max((n+usualPieces-1)/usualPieces, leastPiece), mostPiece)
}

// count returns how many pieces n elements have: one where there are none.
func (p pieces) count(n int) int { return max(1, (n+p.size(n)-1)/p.size(n)) }

// of returns the elements [first,end) of a piece of n.
func (p pieces) of(number, n int) (first, end int) {
	size := p.size(n)
	return number * size, min(n, (number+1)*size)
}

// number returns the number of a piece of the i-th of several vectors of n elements that have the same tag.
func (p pieces) number(i, piece, n int) (int, error) {
	if (i+1)*p.count(n) > maxPieces {
		return 0, fmt.Errorf("%w: %d vectors of %d elements to be sent at once, at most %d elements are", ErrBadGroup, i+1, n, maxPieces*p.size(n))
	}
	return i*p.count(n) + piece, nil
}

// vector is how one vector goes between members.
type vector struct {
	cut pieces
	// self is who sends. An element out of bounds is a fault of whoever sends it: a member looks at its
	// own before it sends them.
	self plan.PeerID
	// overflow takes who sent elements out of bounds, whose update will be skipped; nil: they are a fault.
	overflow func(from plan.PeerID, t wire.Tag)
	// limit is what elements stay below, the same on both sides: float32 rounds nothing.
	limit float32
}

// send sends all pieces of a vector.
func (v vector) send(ctx context.Context, ex Exchange, to plan.PeerID, tag wire.Tag, xs []float32) error {
	return v.each(tag, xs, func(tag wire.Tag, xs []float32) error {
		payload := wire.AppendF32(nil, xs)
		if err := v.check(payload, v.self, tag); err != nil {
			return err
		}
		return ex.Send(ctx, to, wire.Frame{Tag: tag, Payload: payload})
	})
}

// receive fills xs.
func (v vector) receive(ctx context.Context, ex Exchange, from plan.PeerID, tag wire.Tag, xs []float32) error {
	return v.each(tag, xs, func(tag wire.Tag, xs []float32) error { return v.receivePiece(ctx, ex, from, tag, xs) })
}

// each calls f for the pieces of a vector with their tags, in order.
func (v vector) each(tag wire.Tag, xs []float32, f func(tag wire.Tag, xs []float32) error) error {
	for k := range v.cut.count(len(xs)) {
		number, err := v.cut.number(0, k, len(xs))
		if err != nil {
			return err
		}
		first, end := v.cut.of(k, len(xs))
		if err := f(numbered(tag, number), xs[first:end]); err != nil {
			return err
		}
	}
	return nil
}

// check returns the fault of a sender whose elements are out of bounds.
func (v vector) check(payload []byte, from plan.PeerID, tag wire.Tag) error {
	err := wire.CheckElements(payload, v.limit)
	switch {
	case err == nil:
		return nil
	case v.overflow != nil:
		v.overflow(from, tag)
		return nil
	}
	return faulty(plan.BadTensor, from, tag, err)
}

// receivePiece fills xs from one message.
func (v vector) receivePiece(ctx context.Context, ex Exchange, from plan.PeerID, tag wire.Tag, xs []float32) error {
	payload, err := ex.Receive(ctx, from, tag)
	if err != nil {
		return err
	}
	by := Brought(ex, from, tag)
	if err := wire.DecodeF32(xs, payload); err != nil {
		return faulty(plan.BadFrame, by, tag, err)
	}
	return v.check(payload, by, tag)
}

// numbered is the tag of a piece of what a tag names.
func numbered(tag wire.Tag, piece int) wire.Tag {
	tag.Index += int32(piece * maxReplicas * maxLayers)
	return tag
}
