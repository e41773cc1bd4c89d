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

// each calls f for the pieces of v in order, and once where v is empty.
func (p pieces) each(v []float32, f func(number int, piece []float32) error) error {
	size := pieceElements
	if p > 0 {
		size = int(p)
	}
	n := max(1, (len(v)+size-1)/size)
	if n > maxPieces {
		return fmt.Errorf("%w: %d elements to be sent at once, at most %d are", ErrBadGroup, len(v), maxPieces*size)
	}
	for i := range n {
		if err := f(i, v[i*size:min(len(v), (i+1)*size)]); err != nil {
			return err
		}
	}
	return nil
}

func (p pieces) send(ctx context.Context, ex Exchange, to plan.PeerID, tag wire.Tag, v []float32) error {
	return p.each(v, func(number int, piece []float32) error {
		return ex.Send(ctx, to, wire.Frame{Tag: numbered(tag, number), Payload: wire.AppendF32(nil, piece)})
	})
}

// receive fills v.
func (p pieces) receive(ctx context.Context, ex Exchange, from plan.PeerID, tag wire.Tag, v []float32) error {
	return p.each(v, func(number int, piece []float32) error {
		payload, err := ex.Receive(ctx, from, numbered(tag, number))
		if err != nil {
			return err
		}
		return wire.DecodeF32(piece, payload)
	})
}

// numbered is the tag of a piece of what a tag names.
func numbered(tag wire.Tag, piece int) wire.Tag {
	tag.Index += int32(piece * maxReplicas * maxLayers)
	return tag
}
