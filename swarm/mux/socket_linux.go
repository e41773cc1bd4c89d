package mux

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// socket is a connection's socket of TCP.
type socket struct {
	raw     syscall.RawConn
	bounded bool // what the kernel has not sent is bounded
	unsent  int  // by that many bytes
}

// socketOf returns the socket of TCP that carries conn, nil if there is none.
func socketOf(conn net.Conn) *socket {
	under, ok := innermost(conn).(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := under.SyscallConn()
	if err != nil {
		return nil
	}
	s := &socket{raw: raw}
	if _, _, ok := s.look(); !ok {
		return nil
	}
	s.set(unix.TCP_NODELAY, 1)
	s.set(unix.TCP_USER_TIMEOUT, int(idleTime/time.Millisecond)) // a socket that is closed while it waits ends too
	s.bounded = s.bound(unsentFirst)
	return s
}

func (s *socket) set(option, value int) bool {
	var failed error
	err := s.raw.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, option, value) })
	return err == nil && failed == nil
}

// bound has the kernel take no more while it holds that many bytes unsent. Small changes are not worth a call.
func (s *socket) bound(bytes int) bool {
	if s.unsent/4*3 <= bytes && bytes <= s.unsent/4*5 && s.unsent > 0 {
		return true
	}
	s.unsent = bytes
	return s.set(unix.TCP_NOTSENT_LOWAT, bytes)
}

// look returns the congestion window and what the kernel has not sent yet, in bytes.
func (s *socket) look() (window, unsent uint64, ok bool) {
	var info *unix.TCPInfo
	var failed error
	err := s.raw.Control(func(fd uintptr) { info, failed = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	if err != nil || failed != nil {
		return 0, 0, false
	}
	return uint64(info.Snd_cwnd) * uint64(info.Snd_mss), uint64(info.Notsent_bytes), true
}
