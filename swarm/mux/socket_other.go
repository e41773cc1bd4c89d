//go:build !linux && !darwin

package mux

import "net"

// socket is a connection's socket of TCP. Nothing is asked of it here.
type socket struct{ bounded bool }

// socketOf returns nil. Go sets TCP_NODELAY by itself.
func socketOf(net.Conn) *socket { return nil }

func (s *socket) bound(int) bool { return s.bounded }

func (s *socket) look() (window, unsent uint64, ok bool) { return 0, 0, false }
