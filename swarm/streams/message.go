package streams

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"

	"pnode/swarm/admission"
)

// Requests and replies between members are messages on a stream: 4 bytes of length,
// little-endian, and that many bytes.

// WriteMessage sends a length and b in one write.
func WriteMessage(w io.Writer, b []byte) error {
	m := binary.LittleEndian.AppendUint32(make([]byte, 0, 4+len(b)), uint32(len(b)))
	_, err := w.Write(append(m, b...))
	return err
}

// ReadMessage receives a message of at most limit bytes; the error of a longer one wraps
// admission.ErrMalformed. Its memory grows with the bytes that arrive, not with the announced length.
func ReadMessage(r io.Reader, limit int) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(head[:])
	if int64(n) > int64(limit) {
		return nil, fmt.Errorf("%w: message of %d bytes, at most %d are accepted", admission.ErrMalformed, n, limit)
	}
	var b bytes.Buffer
	if _, err := io.CopyN(&b, r, int64(n)); err != nil {
		return nil, fmt.Errorf("message of %d bytes: %w", n, err)
	}
	return b.Bytes(), nil
}
