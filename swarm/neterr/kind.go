package neterr

import (
	"context"
	"crypto/tls"
	"errors"
	"math"
	"net"
	"slices"
	"strings"

	"github.com/libp2p/go-libp2p/core/sec"
	"github.com/quic-go/quic-go"
)

// Kind says in one word what an error of a connection means. Programs may rely on it.
type Kind string

// The kinds of errors, and none.
const (
	KindWorks       Kind = "works"
	KindOtherPeer   Kind = "other-node"  // another node answers
	KindNoPlace     Kind = "busy"        // the other end takes no more connections
	KindClosed      Kind = "closed"      // the other end closed the connection
	KindCut         Kind = "cut"         // a connection that stood, or began to, was cut
	KindForeign     Kind = "foreign"     // what answers speaks another protocol
	KindTLS         Kind = "tls"         // the TLS handshake fails
	KindRefused     Kind = "refused"     // the machine answers that nobody listens
	KindExhausted   Kind = "exhausted"   // this machine has no descriptor or memory left for it
	KindDenied      Kind = "denied"      // this machine does not let the program do it
	KindUnreachable Kind = "unreachable" // a router says that it cannot deliver
	KindNoName      Kind = "no-name"     // the resolver says that the name does not exist
	KindNoResolver  Kind = "no-resolver" // the resolver does not answer, or fails
	KindSilent      Kind = "silent"      // time ran out
	KindNoRoute     Kind = "no-route"    // this machine has no way to the address
	KindFailed      Kind = "failed"      // for a reason that has no word here
	KindGivenUp     Kind = "given-up"    // this node ended it
)

// verbs has the words for each kind. They stand in the order of how much a kind explains. What the other end answers comes
// before what this machine and routers say, and that before silence. An address that this machine has no way to tells less
// still: an IPv6 address of a peer says nothing on a machine with IPv4 alone.
var verbs = []struct {
	kind Kind
	verb string
}{
	{KindOtherPeer, "reaches another node"},
	{KindNoPlace, "finds no place at the other end"},
	{KindClosed, "is closed by the other end"},
	{KindCut, "is cut"},
	{KindForeign, "reaches something else than pnode"},
	{KindTLS, "fails in the TLS handshake"},
	{KindRefused, "is refused: nobody listens"},
	{KindExhausted, "finds no file descriptor or memory left on this machine"},
	{KindDenied, "is blocked by this machine's firewall"},
	{KindUnreachable, "is unreachable, a router says"},
	{KindNoName, "has a name that does not exist"},
	{KindNoResolver, "has a name that the resolver gives no answer about"},
	{KindSilent, "gets no answer"},
	{KindNoRoute, "has no route"},
	{KindFailed, "fails for a reason that the log has (--log-level debug)"},
	{KindGivenUp, "was given up"},
	{KindWorks, "works"},
}

// Rank orders kinds: of the errors of several addresses the one of the lowest rank explains most. Words that are no kind
// come last.
func (k Kind) Rank() int {
	for rank, v := range verbs {
		if v.kind == k {
			return rank
		}
	}
	return math.MaxInt
}

// KindOf returns what an error means. Of errors that were joined, as those of several addresses, it is the kind of the one
// that explains most.
func KindOf(err error) Kind {
	best := KindWorks
	for _, one := range apart(err) {
		if k := kindOf(one); k.Rank() < best.Rank() {
			best = k
		}
	}
	return best
}

// Verb returns what an error of a connection means, to follow the name of whatever was tried: "gets no answer". It holds
// nothing of the error's own text, which others may have written.
func Verb(err error) string { return verbs[KindOf(err).Rank()].verb }

// apart returns the errors that were joined in one, each with what it wraps.
func apart(err error) (all []error) {
	for e := err; e != nil; e = errors.Unwrap(e) {
		if _, ofQUIC := e.(*quic.TransportError); ofQUIC { // one error, which wraps net.ErrClosed too
			break
		}
		if joined, ok := e.(interface{ Unwrap() []error }); ok && len(joined.Unwrap()) > 0 {
			for _, one := range joined.Unwrap() {
				all = append(all, apart(one)...)
			}
			return all
		}
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

// kindOf returns what an error means in which no others are joined.
func kindOf(err error) Kind {
	var told interface{ Kind() Kind }
	var dns *net.DNSError
	var closed *quic.ApplicationError
	var handshake *quic.TransportError
	switch {
	case errors.As(err, &told):
		return told.Kind()
	case errors.As(err, &dns) && dns.IsNotFound:
		return KindNoName
	case dns != nil:
		return KindNoResolver
	case errors.As(err, new(sec.ErrPeerIDMismatch)):
		return KindOtherPeer
	case errors.As(err, &handshake) && handshake.Remote && handshake.ErrorCode == quic.ConnectionRefused:
		return KindNoPlace
	case errors.As(err, &closed) && closed.Remote:
		return KindClosed
	case errors.As(err, new(tls.RecordHeaderError)), errors.As(err, new(*quic.VersionNegotiationError)):
		return KindForeign
	case handshake != nil && handshake.ErrorCode.IsCryptoError(), ofTLS(err):
		return KindTLS
	}
	for _, k := range []struct {
		kind  Kind
		means func(error) bool
	}{
		{KindRefused, Refused},
		{KindExhausted, Exhausted},
		{KindDenied, Denied},
		{KindUnreachable, Unreachable},
		{KindNoRoute, NoRoute},
		{KindCut, Cut},
		{KindSilent, Silent},
	} {
		if k.means(err) {
			return k.kind
		}
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, net.ErrClosed) {
		return KindGivenUp
	}
	return KindFailed
}

// ofTLS reports whether an error is one of package crypto/tls on a stream of bytes: an alert of either end, a certificate, or
// a message that does not fit, for which there is no type.
func ofTLS(err error) bool {
	var alert *net.OpError
	if errors.As(err, &alert) && slices.Contains([]string{"remote error", "local error"}, alert.Op) || errors.As(err, new(*tls.CertificateVerificationError)) {
		return true
	}
	for errors.Unwrap(err) != nil {
		err = errors.Unwrap(err)
	}
	return strings.HasPrefix(err.Error(), "tls: ")
}
