package diagnose

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"syscall"

	"github.com/quic-go/quic-go"
)

// Windows' numbers for the errors of sockets.
const (
	wsaeAccess       = syscall.Errno(10013)
	wsaeAddrNotAvail = syscall.Errno(10049)
	wsaeNetDown      = syscall.Errno(10050)
	wsaeNetUnreach   = syscall.Errno(10051)
	wsaeConnAborted  = syscall.Errno(10053)
	wsaeConnReset    = syscall.Errno(10054)
	wsaeConnRefused  = syscall.Errno(10061)
	wsaeHostUnreach  = syscall.Errno(10065)
)

// findingOf returns what an error of a socket means.
func findingOf(err error) Finding {
	is := func(errs ...error) bool {
		return slices.ContainsFunc(errs, func(e error) bool { return errors.Is(err, e) })
	}
	var remote *quic.TransportError
	var timeout net.Error
	var dns *net.DNSError
	switch {
	case err == nil:
		return Works
	case errors.As(err, &dns) && dns.IsNotFound:
		return NoName
	case dns != nil:
		return NoResolver
	case is(syscall.ECONNREFUSED, wsaeConnRefused):
		return Refused
	case is(syscall.ENETUNREACH, wsaeNetUnreach, syscall.ENETDOWN, wsaeNetDown, syscall.EADDRNOTAVAIL, wsaeAddrNotAvail):
		return NoRoute
	case is(syscall.EHOSTUNREACH, wsaeHostUnreach):
		return Unreachable
	case is(os.ErrPermission, wsaeAccess):
		return Denied
	case badCertificate(err):
		return ClockAhead
	case errors.As(err, &remote) && remote.Remote && remote.ErrorCode == quic.ConnectionRefused:
		return Busy
	case is(syscall.ECONNRESET, wsaeConnReset, wsaeConnAborted, syscall.EPIPE, io.EOF, io.ErrUnexpectedEOF):
		return Cut
	case is(context.DeadlineExceeded, os.ErrDeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return Silent
	}
	return Failed
}

// alertBadCertificate refuses a certificate in a TLS handshake.
const alertBadCertificate = 42

// badCertificate reports whether the other end refused this machine's certificate, which was made for this handshake:
// only its dates can be wrong.
func badCertificate(err error) bool {
	var remote *quic.TransportError
	if errors.As(err, &remote) {
		return remote.Remote && remote.ErrorCode == 0x100+alertBadCertificate
	}
	var alert *net.OpError
	return errors.As(err, &alert) && alert.Op == "remote error" && alert.Err.Error() == "tls: bad certificate"
}
