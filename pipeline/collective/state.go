package collective

import (
	"context"
	"fmt"

	"pnode/pipeline/wire"
)

// State is a vector that the holders of a layer have in parts, and that replica 0 wants whole
// once: the number of it among the layer's.
type State struct {
	Group
	Number int
}

// maxStates is how many vectors a layer may have.
const maxStates = 1 << 8

func (s State) validate() error {
	if s.Number < 0 || s.Number >= maxStates {
		return fmt.Errorf("%w: vector %d of layer %d, 0 to %d are accepted", ErrBadGroup, s.Number, s.Layer, maxStates-1)
	}
	return s.Group.validate()
}

// of is the tag of a message about replica k's part.
func (s State) of(kind wire.Kind, k int) wire.Tag {
	tag := s.tag(kind, k, 0)
	tag.Index = int32(s.Number*maxLayers + s.Layer)
	return tag
}

// Contribute sends the own part, its ranges one behind the other, to replica 0 and waits until
// that has it: the exchange may be closed then.
func Contribute(ctx context.Context, ex Exchange, s State, part []float32) error {
	if err := s.validate(); err != nil {
		return err
	}
	self, to := int(s.Self), s.Members[0].Peer
	err := s.vector().send(ctx, ex, to, s.of(wire.StatePart, self), part)
	if err == nil {
		_, err = ex.Receive(ctx, to, s.of(wire.StateTaken, self))
	}
	if err != nil {
		return s.failed("contribution to the state", err)
	}
	return nil
}

// Collect returns replica 0 the whole of n elements, its own part among them.
func Collect(ctx context.Context, ex Exchange, s State, n int, own []float32) ([]float32, error) {
	if err := s.validate(); err != nil {
		return nil, err
	}
	whole := make([]float32, n)
	s.unpack(int(s.Self), whole, own)
	err := s.toOthers(func(k int) error {
		part := make([]float32, s.partLen(k, n))
		if err := s.vector().receive(ctx, ex, s.Members[k].Peer, s.of(wire.StatePart, k), part); err != nil {
			return fmt.Errorf("part of replica %d: %w", k, err)
		}
		s.unpack(k, whole, part)
		return ex.Send(ctx, s.Members[k].Peer, wire.Frame{Tag: s.of(wire.StateTaken, k)})
	})
	if err != nil {
		return nil, s.failed("collection of the state", err)
	}
	return whole, nil
}
