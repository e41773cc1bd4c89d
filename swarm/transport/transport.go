// Package transport defines what the data plane and the link probe need of a connection between two members, whatever
// carries it: QUIC, TCP, a WebSocket, or another member that forwards it. [QUIC] adapts a QUIC connection; package
// mux makes connections of any reliable byte stream.
//
// Both ends have proved their peer ID before a Conn is made. A Conn carries streams of bytes in both directions, each
// with its own flow control: one that is not read never stops another. Streams of a lower urgency value are sent first.
//
// The package has no goroutines. [Waiting] is what the streams of mux and memory have in common. It is imported by swarm and its rooms, and by pipeline/link.
package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/neterr"
)

// MaxReason bounds the reason with which an end closes a connection, in bytes.
const MaxReason = 1 << 10

// Conn is a connection between two members. Its methods may be called from any goroutine.
type Conn interface {
	// OpenStream opens a stream. It blocks while the peer has as many streams of this end as it takes.
	OpenStream(ctx context.Context) (Stream, error)
	// AcceptStream blocks until the peer has opened a stream and sent something on it.
	AcceptStream(ctx context.Context) (Stream, error)
	// Context ends when the connection has ended, whoever ended it.
	Context() context.Context
	// Err returns why the connection has ended, a *ConnError where one end closed it; nil while it lives.
	Err() error
	// Close ends the connection and tells the peer the code and the reason.
	Close(code Code, reason string)
	// Stats returns what was measured on the connection until now. It is cheap enough to be called for every message.
	Stats() Stats
	RemoteAddr() net.Addr
	Transport() plan.Transport
}

// Stream is one stream of a Conn. One goroutine may read while another one writes; the other methods may be called from
// any goroutine.
type Stream interface {
	// Read returns io.EOF after the last byte where the peer closed its direction, a *StreamError where one end cut it.
	io.Reader
	// Write returns when all bytes were taken over; the stream does not keep b.
	io.Writer
	// Close ends this end's direction after what was written.
	Close() error
	// CancelRead ends the peer's direction: the peer's Write fails with the code. After the stream's end it does nothing.
	CancelRead(Code)
	// CancelWrite ends this end's direction at once, what was not sent yet included: the peer's Read fails with the code.
	CancelWrite(Code)
	// SetUrgency orders the streams of a connection (RFC 9218, section 4.1): 0 goes first, 7 last. Streams of the same
	// urgency take turns.
	SetUrgency(urgency int8)
	// A deadline that has passed fails Read or Write with os.ErrDeadlineExceeded; zero is none.
	SetDeadline(time.Time) error
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

// Code says to the peer why a connection or a stream was ended. Each user of a protocol has codes of its own.
type Code uint64

// Reasons of a connection's end that no user of a protocol has: CodeNotMember that its peer is no member, or not known as one yet, CodeBusy
// that it is one too many.
const (
	CodeNotMember Code = 1<<8 + iota
	CodeBusy
)

// Stats are a connection's measurements. A time is 0 until it was measured.
type Stats struct {
	// MinRTT is the least round trip, LatestRTT the newest, SmoothedRTT and MeanDeviation as in RFC 9002, section 5.3.
	// A round trip counts what stands in queues on the line, not what this end has yet to send.
	MinRTT, LatestRTT, SmoothedRTT, MeanDeviation time.Duration
	// BytesSent and BytesReceived count what went over the line, repeated bytes and overhead included, as far as this is known.
	BytesSent, BytesReceived uint64
	// PacketsSent and PacketsLost count the packets of QUIC, and those of them that were sent anew; 0 elsewhere.
	PacketsSent, PacketsLost uint64
	// CongestionWindow is how many bytes may be under way to the peer.
	CongestionWindow uint64
}

// ConnError says that an end closed a connection.
type ConnError struct {
	Remote bool // the peer did
	Code   Code
	Reason string
}

func (e *ConnError) Error() string {
	who := "this node"
	if e.Remote {
		who = "the peer"
	}
	if e.Reason == "" {
		return fmt.Sprintf("%s closed the connection (code %d)", who, e.Code)
	}
	return fmt.Sprintf("%s closed the connection: %s (code %d)", who, e.Reason, e.Code)
}

// Unwrap returns net.ErrClosed.
func (e *ConnError) Unwrap() error { return net.ErrClosed }

// Kind tells package neterr which end closed the connection.
func (e *ConnError) Kind() neterr.Kind {
	if e.Remote {
		return neterr.KindClosed
	}
	return neterr.KindGivenUp
}

// StreamError says that an end cut a stream.
type StreamError struct {
	Remote bool // the peer did
	Code   Code
}

func (e *StreamError) Error() string {
	if e.Remote {
		return fmt.Sprintf("the peer cut the stream (code %d)", e.Code)
	}
	return fmt.Sprintf("this node cut the stream (code %d)", e.Code)
}

// CutBy returns the code with which the peer cut a stream, if err says so.
func CutBy(err error) (Code, bool) {
	var cut *StreamError
	if errors.As(err, &cut) && cut.Remote {
		return cut.Code, true
	}
	return 0, false
}

// ClosedBy returns how the peer closed the connection, if err says so.
func ClosedBy(err error) (*ConnError, bool) {
	var closed *ConnError
	ok := errors.As(err, &closed) && closed.Remote
	return closed, ok
}
