package node

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"time"

	"pnode/node/checkpointer"
	"pnode/planner/plan"
	"pnode/swarm"
	"pnode/swarm/streams"
)

// Requests between members are one message each way on a stream of their own. The reply
// begins with one byte, 0 for an answer and 1 for an error text.
const (
	maxRequestBytes = 3 << 20
	maxReplyBytes   = 1 << 20
	maxRefusalBytes = 500              // of the other node's words, which people read
	requestTimeout  = 10 * time.Second // for a request to come in, and for its reply to go out
)

// stream is the part of a swarm stream that a request needs.
type stream interface {
	io.ReadWriteCloser
	SetDeadline(t time.Time) error
}

// requests asks other members and answers them.
type requests struct {
	swarm *swarm.Swarm
	log   *slog.Logger
}

// Ask sends a request as JSON to a member and returns its answer. The error wraps checkpointer.ErrRemote where the member has answered with one.
func (r requests) Ask(ctx context.Context, peer plan.PeerID, protocol string, request any) ([]byte, error) {
	data, err := json.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("node: %s: %w", protocol, err)
	}
	s, err := r.swarm.Open(ctx, peer, protocol)
	if err != nil {
		return nil, fmt.Errorf("node: %s to %s: %w", protocol, peer, err)
	}
	reply, err := ask(ctx, s, data)
	if err != nil {
		return nil, fmt.Errorf("node: %s to %s: %w", protocol, peer, err)
	}
	return reply, nil
}

// Serve answers the requests of a protocol from now on.
func (r requests) Serve(protocol string, answer func(ctx context.Context, from plan.PeerID, request []byte) ([]byte, error)) {
	r.swarm.Handle(protocol, func(ctx context.Context, from plan.PeerID, s streams.Stream) {
		_ = s.SetDeadline(time.Now().Add(requestTimeout)) // a stream that cannot ends at once
		err := reply(s, func(request []byte) ([]byte, error) {
			answer, err := answer(ctx, from, request)
			_ = s.SetDeadline(time.Now().Add(requestTimeout))
			return answer, err
		})
		if err != nil {
			r.log.Debug("request", "protocol", protocol, "from", from, "cause", err)
		}
	})
}

// ask sends a request on a fresh stream and returns the answer.
func ask(ctx context.Context, s stream, request []byte) ([]byte, error) {
	defer s.Close()
	stop := context.AfterFunc(ctx, func() { _ = s.SetDeadline(time.Unix(1, 0)) }) // wakes reads and writes
	defer stop()
	err := streams.WriteMessage(s, request)
	var reply []byte
	if err == nil {
		reply, err = streams.ReadMessage(s, maxReplyBytes)
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, err
	case len(reply) == 0:
		return nil, io.ErrUnexpectedEOF
	case reply[0] != 0:
		return nil, fmt.Errorf("%w: %s", checkpointer.ErrRemote, plan.Clip(string(reply[1:]), maxRefusalBytes))
	}
	return reply[1:], nil
}

// reply reads one request and writes its answer, or the error as text.
func reply(s io.ReadWriter, answer func(request []byte) ([]byte, error)) error {
	request, err := streams.ReadMessage(s, maxRequestBytes)
	if err != nil {
		return err
	}
	answered, err := answer(request)
	if err != nil {
		return streams.WriteMessage(s, append([]byte{1}, err.Error()...))
	}
	return streams.WriteMessage(s, append([]byte{0}, answered...))
}
