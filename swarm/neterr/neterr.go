// Package neterr says what errors of sockets mean, on every operating system. On Windows the numbers that package syscall
// has for them are not those that the system returns.
package neterr

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"syscall"
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
func Denied(err error) bool { return is(err, os.ErrPermission, wsaeAccess) }

// Reset reports whether a connection that stood was cut.
func Reset(err error) bool {
	return is(err, syscall.ECONNRESET, wsaeConnReset, wsaeConnAborted, syscall.EPIPE)
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

func is(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(e error) bool { return errors.Is(err, e) })
}
