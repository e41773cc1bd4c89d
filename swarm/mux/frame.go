package mux

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"pnode/swarm/transport"
)

// preface opens both directions: the protocol's name and version.
const preface = "pnodemx\x01"

// kind says what a frame is.
type kind uint8

const (
	kindData kind = iota + 1
	kindEnd
	kindReset
	kindStop
	kindWindow
	kindPing
	kindPong
	kindClose
	kindFault
)

const (
	headerBytes = 8
	// recordBytes bounds what is written at once: one record of TLS holds as much.
	recordBytes = 16 << 10
	maxData     = recordBytes - headerBytes
	codeBytes   = 8
	pongBytes   = 16
	// controlBytes is more than any frame takes that is neither DATA, CLOSE nor FAULT.
	controlBytes = headerBytes + pongBytes
)

// forms lists, by kind, the least and the most bytes of payload, and whether the frame names a stream.
var forms = [...]struct {
	least, most int
	stream      int // 1: yes, 0: no, -1: both
}{
	kindData:   {1, maxData, 1},
	kindEnd:    {0, 0, 1},
	kindReset:  {codeBytes, codeBytes, 1},
	kindStop:   {codeBytes, codeBytes, 1},
	kindWindow: {8, 8, -1},
	kindPing:   {0, 0, 0},
	kindPong:   {pongBytes, pongBytes, 0},
	kindClose:  {codeBytes, codeBytes + transport.MaxReason, 0},
	kindFault:  {0, transport.MaxReason, 0},
}

// header begins a frame. length is the payload's, in bytes.
type header struct {
	kind   kind
	length int
	stream uint32
}

// errFault says that the peer has broken the protocol.
var errFault = errors.New("mux: the peer broke the protocol")

func appendHeader(b []byte, h header) []byte {
	b = append(b, byte(h.kind), byte(h.length>>16), byte(h.length>>8), byte(h.length))
	return binary.BigEndian.AppendUint32(b, h.stream)
}

// readHeader reads a header and checks all that can be checked without the connection's state. An error wraps errFault
// if the header is wrong.
func readHeader(r io.Reader, b *[headerBytes]byte) (header, error) {
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return header{}, err
	}
	h := header{
		kind: kind(b[0]), length: int(b[1])<<16 | int(b[2])<<8 | int(b[3]), stream: binary.BigEndian.Uint32(b[4:]),
	}
	if h.kind == 0 || int(h.kind) >= len(forms) {
		return h, fmt.Errorf("%w: kind %d of a frame, known are 1 to %d", errFault, h.kind, len(forms)-1)
	}
	form := forms[h.kind]
	if h.length < form.least || h.length > form.most {
		return h, fmt.Errorf("%w: frame of kind %d with %d bytes, %d to %d are accepted", errFault, h.kind, h.length, form.least, form.most)
	}
	if form.stream == 1 && h.stream == 0 || form.stream == 0 && h.stream != 0 {
		return h, fmt.Errorf("%w: frame of kind %d on stream %d", errFault, h.kind, h.stream)
	}
	return h, nil
}

// appendNumber appends a frame whose payload is one number.
func appendNumber(b []byte, k kind, stream uint32, n uint64) []byte {
	return binary.BigEndian.AppendUint64(appendHeader(b, header{kind: k, length: 8, stream: stream}), n)
}
