package alpn

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/quic-go/quic-go"

	"pnode/planner/plan"
	"pnode/swarm/tcp"
	"pnode/swarm/websocket"
)

// A dial that fails says over each transport why in words for people, and wraps what the socket said.
func TestDialErrorInWords(t *testing.T) {
	raw := &quic.TransportError{ErrorCode: quic.InternalError, ErrorMessage: "write udp4 0.0.0.0:4001->192.0.2.1:4001: sendmsg: network is unreachable"}
	for want, err := range map[string]error{
		"QUIC has no route": raw,
		"QUIC reaches another release of pnode: fetch the same one for both ends": otherVersion("pnode-data/1", raw),
		"QUIC has no address": errNoAddress,
		"QUIC is stopped at the proxy: the proxy wants a user and a password (it answers 407 Who)": &tcp.ProxyError{Proxy: "10.0.0.1:3128", Answer: tcp.WantsLogin, Status: "407 Who"},
		"QUIC is stopped: a web server answers 404 Not Found where a WebSocket is asked for":       &websocket.AnswerError{Status: "404 Not Found"},
	} {
		failed := &dialError{plan.QUIC, inWords(plan.QUIC, fmt.Errorf("/ip4/192.0.2.1/udp/4001/quic-v1: %w", err)), err}
		if failed.Error() != want || !errors.Is(failed, err) {
			t.Errorf("%q, want %q", failed, want)
		}
	}
	for want, err := range map[string]error{
		"has no address that is dialed because a member asks for it": tcp.ErrNotAllowed,
		"gets no answer": errors.Join(tcp.ErrNotAllowed, raw, context.DeadlineExceeded),
	} {
		if got := inWords(plan.TCP, err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
	if got := inWords(plan.Relay, errors.New("no member forwards connections here")); got != "finds no member that connects the two" {
		t.Errorf("a relay: %q", got)
	}
}
