package websocket

import (
	"bufio"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// ErrProtocol is wrapped by errors about frames that RFC 6455 does not allow, or that are not spoken here.
var ErrProtocol = errors.New("websocket: protocol error")

const (
	opContinue = 0x0
	opBinary   = 0x2
	opClose    = 0x8
	opPing     = 0x9
	opPong     = 0xA

	final  = 0x80 // in a frame's first byte
	masked = 0x80 // in its second

	maxControl = 125
	// maxEmpty bounds the frames in a row that carry no data: pings cost an answer each.
	maxEmpty = 64
	// maxFrame is the largest payload of a frame that is sent, in bytes: two TLS records.
	maxFrame = 32 << 10
	// closeTime bounds how long Close tries to say that it ends the stream.
	closeTime = 100 * time.Millisecond
)

// conn is one end of a WebSocket. Read has one caller at a time, as has Write.
type conn struct {
	net.Conn
	client bool // clients mask what they send
	in     *bufio.Reader
	// left is what is left of the frame that is read, in bytes; mask and at undo its masking. Of Read alone.
	left uint64
	mask [4]byte
	at   int
	// out guards frame, the last frame that was sent.
	out   sync.Mutex
	frame []byte
	once  sync.Once
}

// Read returns the bytes of binary messages, and io.EOF after the peer's close frame. It answers pings.
func (c *conn) Read(b []byte) (int, error) {
	for c.left == 0 {
		if err := c.next(); err != nil {
			return 0, err
		}
	}
	if uint64(len(b)) > c.left {
		b = b[:c.left]
	}
	n, err := c.in.Read(b)
	c.left -= uint64(n)
	if !c.client {
		c.at = xor(b[:n], c.mask, c.at)
	}
	return n, err
}

// next reads frames until one carries data.
func (c *conn) next() error {
	for range maxEmpty {
		op, length, err := c.header()
		if err != nil {
			return err
		}
		switch op {
		case opContinue, opBinary:
			if length > 0 {
				c.left, c.at = length, 0
				return nil
			}
			continue
		case opClose, opPing, opPong:
		default:
			return fmt.Errorf("%w: frame of kind %d, want binary data", ErrProtocol, op)
		}
		var payload [maxControl]byte
		data := payload[:length]
		if _, err := io.ReadFull(c.in, data); err != nil {
			return unexpected(err)
		}
		switch op {
		case opClose:
			return io.EOF
		case opPing:
			xor(data, c.mask, 0)
			if err := c.send(opPong, data); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("%w: %d frames in a row without data", ErrProtocol, maxEmpty)
}

// header reads the head of a frame, whose length is at most 125 for control frames.
func (c *conn) header() (op byte, length uint64, err error) {
	var b [8]byte
	if _, err := io.ReadFull(c.in, b[:2]); err != nil {
		return 0, 0, err
	}
	op, length = b[0]&0x0F, uint64(b[1]&^masked)
	switch {
	case b[0]&0x70 != 0:
		return 0, 0, fmt.Errorf("%w: reserved bits are set", ErrProtocol)
	case (b[1]&masked != 0) == c.client:
		return 0, 0, fmt.Errorf("%w: frames of clients are masked, those of servers are not", ErrProtocol)
	case op >= opClose && (length > maxControl || b[0]&final == 0):
		return 0, 0, fmt.Errorf("%w: control frame of %d bytes, want at most %d in one", ErrProtocol, length, maxControl)
	}
	size := 0
	switch length {
	case 126:
		size = 2
	case 127:
		size = 8
	}
	if size > 0 {
		if _, err := io.ReadFull(c.in, b[8-size:]); err != nil {
			return 0, 0, unexpected(err)
		}
		clear(b[:8-size])
		if length = binary.BigEndian.Uint64(b[:]); length>>63 != 0 {
			return 0, 0, fmt.Errorf("%w: length of %d bytes", ErrProtocol, length)
		}
	}
	c.mask = [4]byte{}
	if !c.client {
		if _, err := io.ReadFull(c.in, c.mask[:]); err != nil {
			return 0, 0, unexpected(err)
		}
	}
	return op, length, nil
}

// unexpected returns the error of a frame that ends early.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Write sends b in messages of at most 32 KB.
func (c *conn) Write(b []byte) (n int, err error) {
	for len(b) > 0 {
		part := b[:min(len(b), maxFrame)]
		if err := c.send(opBinary, part); err != nil {
			return n, err
		}
		n += len(part)
		b = b[len(part):]
	}
	return n, nil
}

// send sends one frame in one write.
func (c *conn) send(op byte, payload []byte) error {
	c.out.Lock()
	defer c.out.Unlock()
	f := append(c.frame[:0], final|op, 0)
	switch n := len(payload); {
	case n < 126:
		f[1] = byte(n)
	default:
		f[1] = 126
		f = binary.BigEndian.AppendUint16(f, uint16(n))
	}
	if c.client {
		var mask [4]byte
		rand.Read(mask[:])
		f[1] |= masked
		f = append(f, mask[:]...)
		start := len(f)
		f = append(f, payload...)
		xor(f[start:], mask, 0)
	} else {
		f = append(f, payload...)
	}
	c.frame = f
	_, err := c.Conn.Write(f)
	return err
}

// Close ends the stream, and tells the peer unless a Write is under way.
func (c *conn) Close() error {
	c.once.Do(func() {
		if c.out.TryLock() {
			c.out.Unlock()
			_ = c.Conn.SetWriteDeadline(time.Now().Add(closeTime))
			_ = c.send(opClose, []byte{0x03, 0xE8}) // 1000: normal closure
		}
	})
	return c.Conn.Close()
}

// NetConn returns the connection that carries the WebSocket.
func (c *conn) NetConn() net.Conn { return c.Conn }

// xor masks b, whose first byte is the mask's byte at, and returns where the mask goes on.
func xor(b []byte, mask [4]byte, at int) int {
	for len(b) > 0 && at != 0 {
		b[0] ^= mask[at]
		b, at = b[1:], (at+1)&3
	}
	word := uint64(binary.LittleEndian.Uint32(mask[:])) * 0x1_0000_0001
	for ; len(b) >= 8; b = b[8:] {
		binary.LittleEndian.PutUint64(b, binary.LittleEndian.Uint64(b)^word)
	}
	for i := range b {
		b[i] ^= mask[at]
		at = (at + 1) & 3
	}
	return at
}
