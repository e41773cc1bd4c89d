package transport

import (
	"context"
	"errors"
	"io"

	"github.com/quic-go/quic-go"

	"pnode/planner/plan"
)

// QUIC returns a QUIC connection as a Conn.
func QUIC(conn *quic.Conn) Conn { return quicConn{conn} }

type quicConn struct{ *quic.Conn }

func (c quicConn) OpenStream(ctx context.Context) (Stream, error) {
	return stream(c.OpenStreamSync(ctx))
}

func (c quicConn) AcceptStream(ctx context.Context) (Stream, error) {
	return stream(c.Conn.AcceptStream(ctx))
}

func (c quicConn) Err() error { return translated(context.Cause(c.Context())) }

func (c quicConn) Close(code Code, reason string) {
	c.CloseWithError(quic.ApplicationErrorCode(code), reason)
}

func (c quicConn) Stats() Stats {
	s := c.ConnectionStats()
	return Stats{
		MinRTT: s.MinRTT, LatestRTT: s.LatestRTT, SmoothedRTT: s.SmoothedRTT, MeanDeviation: s.MeanDeviation,
		BytesSent: s.BytesSent, BytesReceived: s.BytesReceived, CongestionWindow: s.CongestionWindow,
		PacketsSent: s.PacketsSent, PacketsLost: s.PacketsLost,
	}
}

func (c quicConn) Transport() plan.Transport { return plan.QUIC }

type quicStream struct{ *quic.Stream }

func stream(s *quic.Stream, err error) (Stream, error) {
	if err != nil {
		return nil, translated(err)
	}
	return quicStream{s}, nil
}

func (s quicStream) Read(b []byte) (int, error) {
	n, err := s.Stream.Read(b)
	return n, translated(err)
}

func (s quicStream) Write(b []byte) (int, error) {
	n, err := s.Stream.Write(b)
	return n, translated(err)
}

func (s quicStream) CancelRead(code Code)  { s.Stream.CancelRead(quic.StreamErrorCode(code)) }
func (s quicStream) CancelWrite(code Code) { s.Stream.CancelWrite(quic.StreamErrorCode(code)) }
func (s quicStream) SetUrgency(u int8)     { s.SetPriority(u, true) }

// translated returns QUIC's errors of ends that close as this package's.
func translated(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	var closed *quic.ApplicationError
	if errors.As(err, &closed) {
		return &ConnError{Remote: closed.Remote, Code: Code(closed.ErrorCode), Reason: plan.Clip(closed.ErrorMessage, MaxReason)}
	}
	var cut *quic.StreamError
	if errors.As(err, &cut) {
		return &StreamError{Remote: cut.Remote, Code: Code(cut.ErrorCode)}
	}
	return err
}
