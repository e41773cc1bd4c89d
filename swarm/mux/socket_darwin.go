package mux

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// socket is a connection's socket of TCP.
type socket struct{ bounded bool }

// socketOf returns the socket of TCP that carries conn, nil if there is none. What the kernel has not sent is bounded
// once for all: its congestion window is not asked for.
func socketOf(conn net.Conn) *socket {
	under, ok := innermost(conn).(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := under.SyscallConn()
	if err != nil {
		return nil
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsentFirst)
	})
	if err != nil || failed != nil {
		return nil
	}
	return &socket{bounded: true}
}

func (s *socket) bound(int) bool { return s.bounded }

func (s *socket) look() (window, unsent uint64, ok bool) { return 0, 0, false }
