package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"pnode/planner/plan"
	"pnode/swarm"
)

// Requests between members are one message each way on a stream of their own. The reply
// begins with one byte, 0 for an answer and 1 for an error text.
const (
	maxRequestBytes = 3 << 20
	maxReplyBytes   = 1 << 20
	requestTimeout  = 10 * time.Second // for a request to come in
)

// errRemote is wrapped by errors that the other node reported.
var errRemote = errors.New("node: the other node refused")

// stream is what a request needs of a swarm stream.
type stream interface {
	io.ReadWriteCloser
	SetDeadline(t time.Time) error
}

// ask sends a request on a fresh stream and returns the answer.
func ask(ctx context.Context, s stream, request []byte) ([]byte, error) {
	defer s.Close()
	stop := context.AfterFunc(ctx, func() { _ = s.SetDeadline(time.Unix(1, 0)) }) // wakes reads and writes
	defer stop()
	err := swarm.WriteMessage(s, request)
	var reply []byte
	if err == nil {
		reply, err = swarm.ReadMessage(s, maxReplyBytes)
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, err
	case len(reply) == 0:
		return nil, io.ErrUnexpectedEOF
	case reply[0] != 0:
		return nil, fmt.Errorf("%w: %.500s", errRemote, reply[1:])
	}
	return reply[1:], nil
}

// answer reads one request, handles it and replies.
func answer(s io.ReadWriter, handle func(request []byte) ([]byte, error)) error {
	request, err := swarm.ReadMessage(s, maxRequestBytes)
	if err != nil {
		return err
	}
	reply, err := handle(request)
	if err != nil {
		return swarm.WriteMessage(s, append([]byte{1}, err.Error()...))
	}
	return swarm.WriteMessage(s, append([]byte{0}, reply...))
}

// askPeer opens a stream to a member for one request; v is the JSON of the request.
func (n *Node) askPeer(ctx context.Context, peer plan.PeerID, protocol string, v any) ([]byte, error) {
	request, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("node: %s: %w", protocol, err)
	}
	s, err := n.swarm.Open(ctx, peer, protocol)
	if err != nil {
		return nil, fmt.Errorf("node: %s to %s: %w", protocol, peer, err)
	}
	reply, err := ask(ctx, s, request)
	if err != nil {
		return nil, fmt.Errorf("node: %s to %s: %w", protocol, peer, err)
	}
	return reply, nil
}
