package relay

import (
	"fmt"
	"io"

	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/streams"
)

const (
	messageVersion = 1
	// maxText bounds a peer ID and the name of an ALPN, in bytes.
	maxText = 64
	// maxMessage bounds an encoded message: 1+1+16+2*(1+64).
	maxMessage = 148
)

// verdict is the answer to a question or a call.
type verdict byte

const (
	accepted verdict = iota
	// busy: too many relayed connections or questions, of this member or of all.
	busy
	// unreachable: the relay has no direct connection to that peer.
	unreachable
	// refused: the called peer does not know the caller, or not the ALPN.
	refused
	verdicts
)

func (v verdict) String() string {
	switch v {
	case accepted:
		return "accepted"
	case busy:
		return "it relays as much as it may already"
	case unreachable:
		return "it has no direct connection to the peer"
	case refused:
		return "the peer refused"
	}
	return fmt.Sprintf("verdict %d", byte(v))
}

// token admits one end to one relayed connection, once.
type token [16]byte

// message carries questions, calls and answers on control streams. A question names the peer to reach and the ALPN to speak with it; a call
// names the peer that asks, with the called end's token; the answer to either has a verdict and, to a question, the
// asking end's token.
type message struct {
	verdict verdict
	token   token
	peer    plan.PeerID
	alpn    string
}

// encode returns the message: version, verdict, token, and two texts of at most maxText bytes, each after its length.
func (m message) encode() []byte {
	b := append([]byte{messageVersion, byte(m.verdict)}, m.token[:]...)
	for _, text := range []string{string(m.peer), m.alpn} {
		text = text[:min(len(text), maxText)]
		b = append(append(b, byte(len(text))), text...)
	}
	return b
}

// decode reads what encode wrote; other bytes give an error that wraps admission.ErrMalformed.
func decode(b []byte) (message, error) {
	var m message
	head := 2 + len(m.token)
	if len(b) < head || b[0] != messageVersion || verdict(b[1]) >= verdicts {
		return m, fmt.Errorf("%w: relay message of %d bytes", admission.ErrMalformed, len(b))
	}
	m.verdict = verdict(b[1])
	copy(m.token[:], b[2:])
	b = b[head:]
	var texts [2]string
	for i := range texts {
		if len(b) < 1 || b[0] > maxText || len(b) < 1+int(b[0]) {
			return message{}, fmt.Errorf("%w: text in a relay message", admission.ErrMalformed)
		}
		texts[i], b = string(b[1:1+b[0]]), b[1+b[0]:]
	}
	if len(b) > 0 {
		return message{}, fmt.Errorf("%w: %d bytes after a relay message", admission.ErrMalformed, len(b))
	}
	m.peer, m.alpn = plan.PeerID(texts[0]), texts[1]
	return m, nil
}

func write(w io.Writer, m message) error { return streams.WriteMessage(w, m.encode()) }

func read(r io.Reader) (message, error) {
	b, err := streams.ReadMessage(r, maxMessage)
	if err != nil {
		return message{}, err
	}
	return decode(b)
}
