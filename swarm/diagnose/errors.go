package diagnose

import (
	"errors"
	"net"
	"slices"

	"github.com/quic-go/quic-go"

	"pnode/swarm/neterr"
	"pnode/swarm/websocket"
)

// findingOf returns what an error of a socket means.
func findingOf(err error) Finding {
	switch {
	case errors.As(err, new(*websocket.AnswerError)):
		return Foreign
	case badCertificate(err):
		return ClockAhead
	}
	return Finding(neterr.KindOf(err))
}

// telling lists findings that only these tests make, those first that explain more than the same test at another place.
var telling = []Finding{ClockBehind, ClockAhead, ProxyLogin, ProxyDenies, ProxyCannot}

// rank orders findings: the lowest explains most. Those of sockets follow, as package neterr ranks them.
func (f Finding) rank() int {
	if i := slices.Index(telling, f); i >= 0 {
		return i - len(telling)
	}
	return neterr.Kind(f).Rank()
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
