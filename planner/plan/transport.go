package plan

import "slices"

// Transport names how two nodes reach each other's data plane.
type Transport string

// The transports, the better first.
const (
	QUIC      Transport = "quic"
	TCP       Transport = "tcp"
	WebSocket Transport = "websocket"
	// Relay is a path through another member, which forwards bytes that it cannot read.
	Relay Transport = "relay"
)

// Transports lists all of them, the better first.
var Transports = []Transport{QUIC, TCP, WebSocket, Relay}

// Valid reports whether t is one of Transports, or empty: not known.
func (t Transport) Valid() bool { return t == "" || slices.Contains(Transports, t) }

// Better reports whether t is better than another. It is false where either is not known.
func (t Transport) Better(than Transport) bool {
	a, b := slices.Index(Transports, t), slices.Index(Transports, than)
	return a >= 0 && b >= 0 && a < b
}

// String returns the name that people read.
func (t Transport) String() string {
	switch t {
	case QUIC:
		return "QUIC"
	case TCP:
		return "TCP"
	case WebSocket:
		return "WebSocket"
	case Relay:
		return "relay"
	case "":
		return "unknown"
	}
	return string(t)
}
