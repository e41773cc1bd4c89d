package planner

import (
	"errors"
	"fmt"

	"pnode/pipeline/schedule"
	"pnode/planner/cost"
)

// ErrTooLong is wrapped by errors about messages between workers that no link takes.
var ErrTooLong = errors.New("planner: a message is too long for a link")

// CheckMessages wants what crosses between so many stages to be in messages that links take. The error
// wraps ErrTooLong and names the setting that is too large.
func (s RunSpec) CheckMessages(stages int) error {
	_, codec := s.Train.Codec.bounds()
	batch, each := int64(s.Train.MicroBatch), s.sequenceBytes(codec)
	if stages < 2 || batch*each <= messageRoom {
		return nil
	}
	want := "a shorter context"
	if most := messageRoom / each; most > 0 {
		want = fmt.Sprintf("at most %d, with more micros", most)
	}
	if codec == cost.F32 {
		want += ", or codec bf16, which halves that"
	}
	return fmt.Errorf("%w: micro_batch is %d: with a context of %d and %d channels %s cross between stages at once, %s can: want %s, or stages 1",
		ErrTooLong, batch, s.Model.Context, s.Model.Channels, cost.Size(batch*each), cost.Size(cost.MaxMessageBytes), want)
}

// codecBounds are those of the run's rule, without the codecs in which messages between stages are
// too long.
func (s RunSpec) codecBounds() (widest, narrowest cost.Codec) {
	widest, narrowest = s.Train.Codec.bounds()
	for widest < narrowest && int64(s.Train.MicroBatch)*s.sequenceBytes(widest) > messageRoom {
		widest++
	}
	return widest, narrowest
}

// messageRoom is what a message has for elements.
const messageRoom = cost.MaxMessageBytes - cost.CodecFront

// sequenceBytes is what one sequence [T,C] adds to a message between stages: in Int8 what it takes in
// BF16, where tensors go that Int8 does not hold.
func (s RunSpec) sequenceBytes(codec cost.Codec) int64 {
	elements := int64(s.Model.Context) * int64(s.Model.Channels)
	if spec, err := schedule.ParseSpec(s.Train.Schedule); err == nil {
		elements /= int64(max(spec.Segments(), 1))
	}
	return min(codec, cost.BF16).Bytes(elements) - cost.CodecFront
}
