// Package neterr says what errors of connections mean, on every operating system and over every transport: programs ask
// [Refused] and the like, people read [Verb]. Where several addresses were tried, the error that explains most counts
// ([KindOf]). On Windows the numbers that package syscall has for errors are not those
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
	wsaeMFile        = syscall.Errno(10024)
	wsaeAddrInUse    = syscall.Errno(10048)
	wsaeAddrNotAvail = syscall.Errno(10049)
	wsaeAFNoSupport  = syscall.Errno(10047)
	wsaeNetDown      = syscall.Errno(10050)
	wsaeNetUnreach   = syscall.Errno(10051)
	wsaeConnAborted  = syscall.Errno(10053)
	wsaeConnReset    = syscall.Errno(10054)
	wsaeNoBufs       = syscall.Errno(10055)
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

// Exhausted reports whether this machine has no file descriptor, or no memory, left for a socket or what it sends.
func Exhausted(err error) bool {
	return is(err, syscall.EMFILE, wsaeMFile, syscall.ENFILE, syscall.ENOBUFS, wsaeNoBufs, syscall.ENOMEM)
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
