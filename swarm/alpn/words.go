package alpn

import (
	"errors"

	"pnode/planner/plan"
	"pnode/swarm/neterr"
	"pnode/swarm/tcp"
	"pnode/swarm/version"
	"pnode/swarm/websocket"
)

// dialError says in words for people why a transport did not work; it wraps the error of the dial, which the log has.
type dialError struct {
	over plan.Transport
	why  string
	err  error
}

func (e *dialError) Error() string { return e.over.String() + " " + e.why }
func (e *dialError) Unwrap() error { return e.err }

// inWords returns what an error of a dial says of a transport, without addresses and without the error's own words.
func inWords(over plan.Transport, err error) string {
	var proxied *tcp.ProxyError
	var server *websocket.AnswerError
	switch {
	case err == nil:
		return ""
	case errors.Is(err, errNoAddress):
		return "has no address"
	case errors.Is(err, version.Err):
		return "reaches another release of pnode: fetch the same one for both ends"
	case errors.As(err, &proxied):
		return "is stopped at the proxy: " + proxied.Says()
	case errors.As(err, &server):
		return "is stopped: " + server.Error()
	case over == plan.Relay && !neterr.Silent(err):
		return "finds no member that connects the two"
	case errors.Is(err, tcp.ErrNotAllowed) && neterr.KindOf(err) == neterr.KindFailed: // at all of its addresses
		return "has no address that is dialed because a member asks for it"
	}
	return neterr.Verb(err)
}
