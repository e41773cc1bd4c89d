package collective

import (
	"context"
	"fmt"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

const (
	// pieceElements is how many elements go in one message: half of what a link takes.
	pieceElements = cutBytes / 4
	cutBytes      = wire.MaxTensorBytes / 2
	// maxPieces are of one vector, 4 GiB.
	maxPieces = 1 << 5
)

// pieces is how many elements of a vector go in one message, 0 for pieceElements: a large
// vocabulary's embedding has more than a link takes.
type pieces int

// each calls f for the pieces of the i-th of several vectors of one length, in order, and once where v is
// empty. The pieces are numbered through.
func (p pieces) each(i int, v []float32, f func(number int, piece []float32) error) error {
	size := pieceElements
	if p > 0 {
		size = int(p)
	}
	n := max(1, (len(v)+size-1)/size)
	if (i+1)*n > maxPieces {
		return fmt.Errorf("%w: %d vectors of %d elements to be sent at once, at most %d elements are", ErrBadGroup, i+1, len(v), maxPieces*size)
	}
	for k := range n {
		if err := f(i*n+k, v[k*size:min(len(v), (k+1)*size)]); err != nil {
			return err
		}
	}
	return nil
}

// vector is how one vector goes between members.
type vector struct {
	cut pieces
	// number tells vectors apart that have the same tag.
	number int
	// self is who sends. An element out of bounds is a fault of whoever sends it: a member looks at its
	// own before it sends them.
	self plan.PeerID
	// overflow takes who sent elements out of bounds, whose update will be skipped; nil: they are a fault.
	overflow func(from plan.PeerID, t wire.Tag)
	// limit is what elements stay below, the same on both sides: float32 rounds nothing.
	limit float32
}

func (v vector) send(ctx context.Context, ex Exchange, to plan.PeerID, tag wire.Tag, xs []float32) error {
	return v.cut.each(v.number, xs, func(number int, piece []float32) error {
		payload, err := v.payload(numbered(tag, number), piece)
		if err != nil {
			return err
		}
		return ex.Send(ctx, to, wire.Frame{Tag: numbered(tag, number), Payload: payload})
	})
}

// payload encodes own elements once they are known to be within bounds.
func (v vector) payload(tag wire.Tag, piece []float32) ([]byte, error) {
	payload := wire.AppendF32(nil, piece)
	return payload, v.check(payload, v.self, tag)
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

// receive fills xs.
func (v vector) receive(ctx context.Context, ex Exchange, from plan.PeerID, tag wire.Tag, xs []float32) error {
	return v.cut.each(v.number, xs, func(number int, piece []float32) error {
		tag := numbered(tag, number)
		payload, err := ex.Receive(ctx, from, tag)
		if err != nil {
			return err
		}
		by := Brought(ex, from, tag)
		if err := wire.DecodeF32(piece, payload); err != nil {
			return faulty(plan.BadFrame, by, tag, err)
		}
		return v.check(payload, by, tag)
	})
}

// numbered is the tag of a piece of what a tag names.
func numbered(tag wire.Tag, piece int) wire.Tag {
	tag.Index += int32(piece * maxReplicas * maxLayers)
	return tag
}
