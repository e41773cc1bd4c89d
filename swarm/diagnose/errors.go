package diagnose

import (
	"errors"
	"net"

	"github.com/quic-go/quic-go"

	"pnode/swarm/neterr"
	"pnode/swarm/websocket"
)

// findingOf returns what an error of a socket means.
func findingOf(err error) Finding {
	var remote *quic.TransportError
	var dns *net.DNSError
	var server *websocket.AnswerError
	switch {
	case err == nil:
		return Works
	case errors.As(err, &dns) && dns.IsNotFound:
		return NoName
	case dns != nil:
		return NoResolver
	case neterr.Refused(err):
		return Refused
	case neterr.NoRoute(err):
		return NoRoute
	case neterr.Unreachable(err):
		return Unreachable
	case neterr.Denied(err):
		return Denied
	case errors.As(err, &server):
		return Foreign
	case badCertificate(err):
		return ClockAhead
	case errors.As(err, &remote) && remote.Remote && remote.ErrorCode == quic.ConnectionRefused:
		return Busy
	case neterr.Cut(err):
		return Cut
	case neterr.Silent(err):
		return Silent
	}
	return Failed
}

// alertBadCertificate refuses a certificate in a TLS handshake.
const alertBadCertificate = 42

// badCertificate reports whether the other end refused this machine's certificate, which was made for this handshake:
// only its dates can be wrong.
func badCertificate(err error) bool {
	var remote *quic.TransportError
	if errors.As(err, &remote) {
		return remote.Remote && remote.ErrorCode == 0x100+alertBadCertificate
	}
	var alert *net.OpError
	return errors.As(err, &alert) && alert.Op == "remote error" && alert.Err.Error() == "tls: bad certificate"
}
