package swarm

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"

	"pnode/planner/plan"
)

// Stream is a reliable two-way stream to a member, on libp2p's own connection: for control
// messages, not for bulk. Close ends both directions and unblocks Read and Write, within
// seconds; Reset does it at once, without delivering what was written.
type Stream interface {
	io.ReadWriteCloser
	CloseWrite() error
	Reset() error
	SetDeadline(time.Time) error
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

const (
	// maxHandlers bounds the streams of one protocol that are handled at once; more are reset.
	maxHandlers = 512
	// openTime bounds opening a stream for a caller whose context has no deadline.
	openTime = 15 * time.Second
)

// Handle answers a protocol's streams, such as "/pnode/raft/1", each on a goroutine of its
// own. Only members get here. ctx ends when the swarm closes, and with it every stream; f
// must then return, and the stream is closed after it. A second Handle of one protocol
// replaces the first.
func (s *Swarm) Handle(proto string, f func(ctx context.Context, from plan.PeerID, stream Stream)) {
	room := make(chan struct{}, maxHandlers)
	s.host.SetStreamHandler(protocol.ID(proto), s.membersOnly(func(st network.Stream) {
		select {
		case room <- struct{}{}:
		default:
			s.log.Warn("swarm: too many streams", "protocol", proto, "limit", maxHandlers)
			st.Reset()
			return
		}
		defer func() { <-room }()
		w := stream{st}
		defer w.Close()
		f(s.tasks.ctx, plan.PeerID(st.Conn().RemotePeer().String()), w)
	}))
}

// membersOnly resets the streams of peers that are not members, unread, and counts the
// handler among the swarm's goroutines.
func (s *Swarm) membersOnly(f network.StreamHandler) network.StreamHandler {
	return func(st network.Stream) {
		if !s.tasks.enter() {
			st.Reset()
			return
		}
		defer s.tasks.leave()
		ctx, cancel := context.WithTimeout(s.tasks.ctx, admissionTime)
		err := s.door.wait(ctx, st.Conn().RemotePeer())
		cancel()
		if err != nil {
			s.log.Debug("swarm: stream refused", "peer", st.Conn().RemotePeer(), "protocol", st.Protocol(), "err", err)
			st.Reset()
			return
		}
		f(st)
	}
}

// Open opens a stream to a member, connecting to it first when its addresses are known. A
// peer that does not speak the protocol shows as an error here or at the first Read.
func (s *Swarm) Open(ctx context.Context, p plan.PeerID, proto string) (Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	id, err := s.reach(ctx, p)
	if err == nil {
		var st network.Stream
		if st, err = s.newStream(ctx, id, protocol.ID(proto)); err == nil {
			return stream{st}, nil
		}
	}
	return nil, fmt.Errorf("swarm: open %s to %s: %w", proto, p, err)
}

// newStream opens a stream on an existing connection; a relayed one will do.
func (s *Swarm) newStream(ctx context.Context, p peer.ID, protos ...protocol.ID) (network.Stream, error) {
	ctx = network.WithAllowLimitedConn(network.WithNoDial(ctx, "member"), "control")
	return s.host.NewStream(ctx, p, protos...)
}

// closeTime is how long Close waits for the peer's word on the protocol of a fresh stream.
// A peer that died never gives it, and libp2p waits for ten seconds.
const closeTime = 3 * time.Second

// stream makes Close unblock a Write that waits for the other side to read, and a Read.
type stream struct{ network.Stream }

func (s stream) Close() error {
	if err := s.SetWriteDeadline(time.Unix(1, 0)); err != nil {
		return s.Reset()
	}
	enough := time.AfterFunc(closeTime, func() { s.Reset() })
	defer enough.Stop()
	return s.Stream.Close()
}
