package plan

import (
	"errors"
	"fmt"

	"pnode/pipeline/schedule"
)

// ErrTooLong is wrapped by errors about messages between workers that no link takes.
var ErrTooLong = errors.New("planner: a message is too long for a link")

// CheckMessages wants what crosses between so many stages to be in messages that links take. The error
// wraps ErrTooLong and names the setting that is too large.
func (s RunSpec) CheckMessages(stages int) error {
	_, codec := s.Train.Codec.Bounds()
	batch, each := int64(s.Train.MicroBatch), s.sequenceBytes(codec)
	if stages < 2 || batch*each <= messageRoom {
		return nil
	}
	want := "a shorter context"
	if most := messageRoom / each; most > 0 {
		want = fmt.Sprintf("at most %d, with more micros", most)
	}
	if codec == CodecF32 {
		want += ", or codec bf16, which halves that"
	}
	return fmt.Errorf("%w: micro_batch is %d: with a context of %d and %d channels %s cross between stages at once, %s can: want %s, or stages 1",
		ErrTooLong, batch, s.Model.Context, s.Model.Channels, Size(batch*each), Size(MaxMessageBytes), want)
}

// codecBounds are those of the run's rule, without the codecs in which messages between stages are
// too long.
func (s RunSpec) CodecBounds() (widest, narrowest Codec) {
	widest, narrowest = s.Train.Codec.Bounds()
	for widest < narrowest && int64(s.Train.MicroBatch)*s.sequenceBytes(widest) > messageRoom {
		widest++
	}
	return widest, narrowest
}

// messageRoom is what a message has for elements.
const messageRoom = MaxMessageBytes - CodecFront

// sequenceBytes is what one sequence [T,C] adds to a message between stages: in Int8 what it takes in
// BF16, where tensors go that Int8 does not hold.
func (s RunSpec) sequenceBytes(codec Codec) int64 {
	elements := int64(s.Model.Context) * int64(s.Model.Channels)
	if spec, err := schedule.ParseSpec(s.Train.Schedule); err == nil {
		elements /= int64(max(spec.Segments(), 1))
	}
	return min(codec, CodecBF16).Bytes(elements) - CodecFront
}
