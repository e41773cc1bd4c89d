package neterr

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/sec"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
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
		{"exhausted", Exhausted, syscall.EMFILE, 10024},
		{"no buffers", Exhausted, syscall.ENOBUFS, 10055},
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

// Errors of all kinds are told in plain words, without what others may have written into them. Of several addresses the one
// that answered tells more than the silent one, and that more than the one that this machine has no way to.
func TestVerb(t *testing.T) {
	const theirs = "\x1b[31mnonsense"
	noRoute := &quic.TransportError{ErrorCode: quic.InternalError, ErrorMessage: "write udp 10.0.0.1:4001->192.0.2.1:4001: sendmsg: network is unreachable"}
	full := os.NewSyscallError("socket", syscall.EMFILE)
	other := sec.ErrPeerIDMismatch{Expected: "us", Actual: theirs}
	both := func(errs ...error) error { return fmt.Errorf("QUIC: %w", errors.Join(errs...)) }
	for _, c := range []struct {
		want string
		err  error
	}{
		{"works", nil},
		{"has a name that does not exist", &net.DNSError{IsNotFound: true, Name: theirs}},
		{"has a name that the resolver gives no answer about", &net.DNSError{Err: theirs, IsTimeout: true}},
		{"is refused: nobody listens", syscall.ECONNREFUSED},
		{"has no route", noRoute},
		{"is unreachable, a router says", syscall.EHOSTUNREACH},
		{"is blocked by this machine's firewall", &quic.TransportError{ErrorCode: quic.InternalError, ErrorMessage: "write udp: sendmsg: operation not permitted"}},
		{"finds no file descriptor or memory left on this machine", &net.OpError{Op: "dial", Err: full}},
		{"finds no file descriptor or memory left on this machine", &quic.TransportError{ErrorCode: quic.InternalError, ErrorMessage: "write udp: sendmsg: no buffer space available"}},
		{"finds no place at the other end", &quic.TransportError{Remote: true, ErrorCode: quic.ConnectionRefused, ErrorMessage: theirs}},
		{"fails in the TLS handshake", &quic.TransportError{Remote: true, ErrorCode: 0x128, ErrorMessage: theirs}},
		{"fails in the TLS handshake", &net.OpError{Op: "remote error", Err: errors.New(theirs)}},
		{"fails in the TLS handshake", fmt.Errorf("/ip4/192.0.2.1/tcp/1: %w", errors.New("tls: server chose an unconfigured cipher suite"))},
		{"fails in the TLS handshake", &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}},
		{"reaches something else than pnode", tls.RecordHeaderError{Msg: theirs}},
		{"reaches something else than pnode", &quic.VersionNegotiationError{}},
		{"reaches another node", fmt.Errorf("dial: %w", other)},
		{"is closed by the other end", &quic.ApplicationError{Remote: true, ErrorMessage: theirs}},
		{"is cut", io.ErrUnexpectedEOF},
		{"gets no answer", &quic.IdleTimeoutError{}},
		{"was given up", context.Canceled},
		{"was given up", &quic.ApplicationError{ErrorMessage: theirs}},
		{"fails for a reason that the log has (--log-level debug)", errors.New(theirs)},

		{"gets no answer", both(noRoute, context.DeadlineExceeded)},
		{"gets no answer", both(&quic.HandshakeTimeoutError{}, syscall.ENETUNREACH, context.Canceled)},
		{"is refused: nobody listens", both(context.DeadlineExceeded, syscall.ECONNREFUSED, syscall.EHOSTUNREACH)},
		{"is unreachable, a router says", both(noRoute, both(syscall.EHOSTUNREACH, context.DeadlineExceeded))},
		{"is blocked by this machine's firewall", both(syscall.EHOSTUNREACH, syscall.EPERM)},
		{"reaches another node", both(syscall.ECONNREFUSED, io.EOF, other)},
		{"is cut", both(syscall.ECONNREFUSED, &net.OpError{Op: "read", Err: syscall.ECONNRESET})},
		{"fails for a reason that the log has (--log-level debug)", both(context.Canceled, errors.New(theirs))},
		{"fails in the TLS handshake", fmt.Errorf("%w: %w", errors.New(theirs), &quic.TransportError{ErrorCode: 0x12a})},
		{"fails for a reason that the log has (--log-level debug)", &swarm.DialError{}},
		{"has no route", &swarm.DialError{Cause: errors.New("all dials failed"), DialErrors: []swarm.TransportError{{Cause: noRoute}}}},
	} {
		if got := Verb(c.err); got != c.want {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
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
