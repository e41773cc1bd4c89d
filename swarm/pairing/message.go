package pairing

import (
	"encoding/binary"
	"fmt"

	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/version"
)

const (
	messageVersion = 1
	// maxTextBytes bounds each text of a message: an invite is the longest.
	maxTextBytes = admission.MaxInviteChars
	// maxNameBytes bounds the names of machines.
	maxNameBytes = 64
	// maxMessageBytes bounds a message: version, kind, value, two texts with their lengths.
	maxMessageBytes = 2 + numberBytes + 2*(2+maxTextBytes)
	numberBytes     = 32
)

// kind says what a message is.
type kind byte

// The kinds of messages: those up to poll open a stream.
const (
	kindWho     kind = iota + 1 // who are you
	kindCommit                  // Number is the commitment, Text the newcomer's name
	kindPoll                    // what came of it?
	kindReveal                  // Number is the newcomer's
	kindAbout                   // Text is the run, More the name of the owner's machine
	kindNumber                  // Number is the owner's
	kindWaiting                 // people have not decided yet
	kindRefused                 // Text says why
	kindInvite                  // Text is the invite
)

// number holds a random number, or a commitment to one.
type number [numberBytes]byte

// message holds what either end sends. Fields that its kind does not name are empty.
type message struct {
	Kind       kind
	Number     number
	Text, More string
}

// append appends the encoded message to dst.
func (m message) append(dst []byte) []byte {
	dst = append(append(dst, messageVersion, byte(m.Kind)), m.Number[:]...)
	for _, text := range []string{m.Text, m.More} {
		dst = binary.LittleEndian.AppendUint16(dst, uint16(len(text)))
		dst = append(dst, text...)
	}
	return dst
}

// decodeMessage reads what append wrote. Texts are printable.
func decodeMessage(b []byte) (m message, err error) {
	if len(b) < 2+numberBytes {
		return m, malformed("%d bytes, want at least %d", len(b), 2+numberBytes)
	}
	if b[0] != messageVersion {
		return m, fmt.Errorf("%w: %w", admission.ErrMalformed, version.Unknown("the request for an invite", int(b[0]), messageVersion))
	}
	if m.Kind = kind(b[1]); m.Kind < kindWho || m.Kind > kindInvite {
		return message{}, malformed("kind %d", b[1])
	}
	b = b[2:]
	b = b[copy(m.Number[:], b):]
	for _, text := range []*string{&m.Text, &m.More} {
		if *text, b, err = takeText(b); err != nil {
			return message{}, err
		}
	}
	if len(b) > 0 {
		return message{}, malformed("%d bytes after the end", len(b))
	}
	return m, nil
}

// takeText reads one text, and returns what follows it.
func takeText(b []byte) (text string, rest []byte, err error) {
	if len(b) < 2 {
		return "", nil, malformed("a text is missing")
	}
	n := int(binary.LittleEndian.Uint16(b))
	switch b = b[2:]; {
	case n > maxTextBytes:
		return "", nil, malformed("text of %d bytes, at most %d are accepted", n, maxTextBytes)
	case n > len(b):
		return "", nil, malformed("text of %d bytes, %d are there", n, len(b))
	case !plan.Printable(string(b[:n]), maxTextBytes):
		return "", nil, malformed("text of %d bytes that cannot be shown", n)
	}
	return string(b[:n]), b[n:], nil
}

// malformed returns an error about bytes from outside.
func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", admission.ErrMalformed, fmt.Sprintf(format, args...))
}
