package neterr

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/quic-go/quic-go"
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
			inQUIC := &quic.TransportError{ErrorCode: quic.InternalError, ErrorMessage: err.Error()}
			if !c.means(err) || !c.means(inQUIC) || c.means(nil) || c.means(syscall.EINVAL) {
				t.Errorf("%s: %d is not told, or others are", c.name, int(errno))
			}
			if inQUIC.Remote = true; c.means(inQUIC) {
				t.Errorf("%s: another machine's words are taken for this one's", c.name)
			}
		}
	}
	if !Cut(fmt.Errorf("read: %w", &network.StreamError{Remote: true})) {
		t.Error("a stream of libp2p's that was reset is cut")
	}
	if Silent(syscall.ECONNREFUSED) || !Silent(os.ErrDeadlineExceeded) {
		t.Error("silent is what timed out")
	}
}

// Errors of all kinds are told in plain words, without what others may have written into them.
func TestVerb(t *testing.T) {
	const theirs = "\x1b[31mnonsense"
	for want, err := range map[string]error{
		"works":                          nil,
		"has a name that does not exist": &net.DNSError{IsNotFound: true, Name: theirs},
		"has a name that the resolver gives no answer about":      &net.DNSError{Err: theirs},
		"is refused: nobody listens":                              syscall.ECONNREFUSED,
		"has no route":                                            &quic.TransportError{ErrorCode: quic.InternalError, ErrorMessage: "write udp 10.0.0.1:4001->192.0.2.1:4001: sendmsg: network is unreachable"},
		"is unreachable, a router says":                           syscall.EHOSTUNREACH,
		"is blocked by this machine's firewall":                   &quic.TransportError{ErrorCode: quic.InternalError, ErrorMessage: "write udp: sendmsg: operation not permitted"},
		"finds no place at the other end":                         &quic.TransportError{Remote: true, ErrorCode: quic.ConnectionRefused, ErrorMessage: theirs},
		"fails in the TLS handshake":                              &quic.TransportError{Remote: true, ErrorCode: 0x128, ErrorMessage: theirs},
		"is closed by the other end":                              &quic.ApplicationError{Remote: true, ErrorMessage: theirs},
		"is cut":                                                  io.ErrUnexpectedEOF,
		"gets no answer":                                          &quic.IdleTimeoutError{},
		"was given up":                                            context.Canceled,
		"fails for a reason that the log has (--log-level debug)": errors.New(theirs),
	} {
		if got := Verb(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
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
