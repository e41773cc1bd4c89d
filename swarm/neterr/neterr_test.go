package neterr

import (
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"
)

func TestErrorsOfEverySystem(t *testing.T) {
	for _, c := range []struct {
		name          string
		means         func(error) bool
		unix, windows syscall.Errno
	}{
		{"refused", Refused, syscall.ECONNREFUSED, 10061},
		{"refused datagram", DatagramRefused, syscall.ECONNREFUSED, 10054},
		{"no route", NoRoute, syscall.ENETUNREACH, 10051},
		{"unreachable", Unreachable, syscall.EHOSTUNREACH, 10065},
		{"denied", Denied, syscall.EACCES, 10013},
		{"reset", Reset, syscall.ECONNRESET, 10054},
		{"in use", InUse, syscall.EADDRINUSE, 10048},
		{"not ours", NotOurs, syscall.EADDRNOTAVAIL, 10049},
	} {
		for _, errno := range []syscall.Errno{c.unix, c.windows} {
			err := fmt.Errorf("dial: %w", &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", errno)})
			if !c.means(err) || c.means(nil) || c.means(syscall.EINVAL) {
				t.Errorf("%s: %d is not told, or others are", c.name, int(errno))
			}
		}
	}
	if Silent(syscall.ECONNREFUSED) || !Silent(os.ErrDeadlineExceeded) {
		t.Error("silent is what timed out")
	}
}

func TestTheSystemRefuses(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	if _, err := net.Listen("tcp", at); !InUse(err) {
		t.Errorf("in use: %v", err)
	}
	l.Close()
	if _, err := net.Dial("tcp", at); !Refused(err) {
		t.Errorf("refused: %v", err)
	}
}
