// Package neterr says what errors of connections mean, on every operating system and over every transport: programs ask
// [Refused] and the like, people read [Verb]. On Windows the numbers that package syscall has for errors are not those
// that the system returns, and QUIC keeps of an error of its socket the words alone.
package neterr

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/quic-go/quic-go"
)

// Windows' numbers.
const (
	wsaeAccess       = syscall.Errno(10013)
	wsaeAddrInUse    = syscall.Errno(10048)
	wsaeAddrNotAvail = syscall.Errno(10049)
	wsaeAFNoSupport  = syscall.Errno(10047)
	wsaeNetDown      = syscall.Errno(10050)
	wsaeNetUnreach   = syscall.Errno(10051)
	wsaeConnAborted  = syscall.Errno(10053)
	wsaeConnReset    = syscall.Errno(10054)
	wsaeConnRefused  = syscall.Errno(10061)
	wsaeHostUnreach  = syscall.Errno(10065)
)

// Refused reports whether the other machine says that nobody listens on the port.
func Refused(err error) bool { return is(err, syscall.ECONNREFUSED, wsaeConnRefused) }

// DatagramRefused reports the same of an error of a connected UDP socket: ICMP said "port unreachable".
func DatagramRefused(err error) bool { return Refused(err) || is(err, wsaeConnReset) }

// NoRoute reports whether this machine has no way to the address.
func NoRoute(err error) bool {
	return is(err, syscall.ENETUNREACH, wsaeNetUnreach, syscall.ENETDOWN, wsaeNetDown, syscall.EADDRNOTAVAIL, wsaeAddrNotAvail)
}

// Unreachable reports whether a router, or this machine, says that the other machine cannot be reached.
func Unreachable(err error) bool { return is(err, syscall.EHOSTUNREACH, wsaeHostUnreach) }

// Denied reports whether this machine does not let the program do it, as a firewall does.
func Denied(err error) bool {
	return is(err, os.ErrPermission, syscall.EPERM, syscall.EACCES, wsaeAccess)
}

// Reset reports whether a connection that stood, or a stream of libp2p's, was cut.
func Reset(err error) bool {
	return is(err, syscall.ECONNRESET, wsaeConnReset, wsaeConnAborted, syscall.EPIPE, network.ErrReset)
}

// Cut reports whether a connection that stood was cut, or ended in the middle of a message.
func Cut(err error) bool {
	return Reset(err) || is(err, io.EOF, io.ErrUnexpectedEOF) || errors.As(err, new(*quic.StatelessResetError))
}

// Silent reports whether time ran out.
func Silent(err error) bool {
	var timeout net.Error
	return is(err, context.DeadlineExceeded, os.ErrDeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

// InUse reports whether another program listens on the port.
func InUse(err error) bool { return is(err, syscall.EADDRINUSE, wsaeAddrInUse) }

// NotOurs reports whether the address to listen on is none of this machine's.
func NotOurs(err error) bool {
	return is(err, syscall.EADDRNOTAVAIL, wsaeAddrNotAvail, syscall.EAFNOSUPPORT, wsaeAFNoSupport)
}

// is reports whether an error is one of targets, or QUIC's of a socket that failed with one.
func is(err error, targets ...error) bool {
	var inQUIC *quic.TransportError
	words := ""
	if errors.As(err, &inQUIC) && !inQUIC.Remote && inQUIC.ErrorCode == quic.InternalError {
		words = inQUIC.ErrorMessage
	}
	return slices.ContainsFunc(targets, func(e error) bool {
		return errors.Is(err, e) || words != "" && strings.HasSuffix(words, ": "+e.Error())
	})
}

// Verb returns what an error of a connection means, to follow the name of whatever was tried: "gets no answer". It holds
// nothing of the error's own text, which others may have written.
func Verb(err error) string {
	var dns *net.DNSError
	var closed *quic.ApplicationError
	var handshake *quic.TransportError
	switch {
	case err == nil:
		return "works"
	case errors.As(err, &dns) && dns.IsNotFound:
		return "has a name that does not exist"
	case dns != nil:
		return "has a name that the resolver gives no answer about"
	case Refused(err):
		return "is refused: nobody listens"
	case NoRoute(err):
		return "has no route"
	case Unreachable(err):
		return "is unreachable, a router says"
	case Denied(err):
		return "is blocked by this machine's firewall"
	case errors.As(err, &handshake) && handshake.Remote && handshake.ErrorCode == quic.ConnectionRefused:
		return "finds no place at the other end"
	case errors.As(err, &handshake) && handshake.ErrorCode.IsCryptoError():
		return "fails in the TLS handshake"
	case errors.As(err, &closed) && closed.Remote:
		return "is closed by the other end"
	case Cut(err):
		return "is cut"
	case Silent(err):
		return "gets no answer"
	case errors.Is(err, context.Canceled), errors.Is(err, net.ErrClosed):
		return "was given up"
	}
	return "fails for a reason that the log has (--log-level debug)"
}
