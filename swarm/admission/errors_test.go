package admission

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	"github.com/quic-go/quic-go"
)

// Errors of the way to a peer are told without the network's own words, which are of several lines. What a member said is told
// as it is.
func TestInWords(t *testing.T) {
	raw := &swarm.DialError{Cause: errors.New("all dials failed"), DialErrors: []swarm.TransportError{
		{Cause: &quic.TransportError{ErrorCode: quic.InternalError, ErrorMessage: "write udp: sendmsg: network is unreachable"}},
		{Cause: context.DeadlineExceeded},
	}}
	refusal := fmt.Errorf("peer desk: %w", refusalFrom(1, "the run is full"))
	for _, c := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("swarm: connect: peer desk: %w", raw), "the connection gets no answer"},
		{fmt.Errorf("swarm: connect: peer desk: %w: %w", ErrNotMember, raw), "not an admitted member"},
		{fmt.Errorf("peer desk: %w: %w", ErrUnknownInvite, raw), ErrUnknownInvite.Error()},
		{refusal, "peer desk: the run is full"},
	} {
		if got := InWords(c.err); got.Error() != c.want || !errors.Is(got, c.err) {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	if err := InWords(nil); err != nil {
		t.Errorf("no error: %v", err)
	}
}
