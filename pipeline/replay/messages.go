package replay

import (
	"errors"
	"fmt"
	"slices"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// ErrNotKept is wrapped by errors about messages that nobody has any more.
var ErrNotKept = errors.New("replay: a message of the step was not kept")

// Message is a frame and who it was for.
type Message struct {
	To    plan.PeerID
	Frame wire.Frame
}

// maxPeerBytes bounds the text of a peer ID.
const maxPeerBytes = 255

// AppendMessages appends messages, each as the length of the receiver's ID in one byte, the ID, the frame's header
// and its payload. It panics where an ID is longer than that byte can say.
func AppendMessages(dst []byte, messages []Message) []byte {
	for _, m := range messages {
		if len(m.To) > maxPeerBytes {
			panic(fmt.Sprintf("replay: a peer ID of %d bytes", len(m.To)))
		}
		dst = append(append(dst, byte(len(m.To))), m.To...)
		dst = append(wire.AppendHeader(dst, m.Frame), m.Frame.Payload...)
	}
	return dst
}

// DecodeMessages reads what AppendMessages wrote: frames of one generation and step, for some peers. The payloads
// share b's memory.
func DecodeMessages(b []byte, generation plan.Generation, step plan.Step, to []plan.PeerID) ([]Message, error) {
	var messages []Message
	for len(b) > 0 {
		n := 1 + int(b[0])
		if len(b) < n+wire.HeaderBytes {
			return nil, fmt.Errorf("replay: message %d: %w", len(messages), wire.ErrLength)
		}
		m := Message{To: plan.PeerID(b[1:n])}
		header, err := wire.DecodeHeader(b[n:], wire.MaxTensorBytes)
		if err != nil {
			return nil, fmt.Errorf("replay: message %d: %w", len(messages), err)
		}
		b = b[n+wire.HeaderBytes:]
		if len(b) < header.PayloadBytes {
			return nil, fmt.Errorf("replay: message %d: %w", len(messages), wire.ErrLength)
		}
		m.Frame = wire.Frame{Tag: header.Tag, Payload: b[:header.PayloadBytes:header.PayloadBytes]}
		b = b[header.PayloadBytes:]
		switch tag := header.Tag; {
		case !slices.Contains(to, m.To), tag.Generation != generation, tag.Step != step, !replayed(tag.Kind):
			return nil, fmt.Errorf("replay: message %d: %w: %v to %s was not asked for", len(messages), wire.ErrValue, tag, m.To)
		}
		if err := header.Verify(m.Frame.Payload); err != nil {
			return nil, fmt.Errorf("replay: message %d: %w", len(messages), err)
		}
		messages = append(messages, m)
	}
	return messages, nil
}
