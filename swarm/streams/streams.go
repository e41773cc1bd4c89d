package streams

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/multiformats/go-multistream"

	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/tasks"
	"pnode/swarm/version"
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

// maxHandlers bounds the streams of one protocol that are handled at once; more are reset. A voter may feed the log to all members of a run.
const maxHandlers = 2048

// Streams opens and answers streams of members on a libp2p host.
type Streams struct {
	Host  host.Host
	Peers *admission.Peers
	Tasks *tasks.Group
	Log   *slog.Logger
}

// Handle answers a protocol's streams, such as "/pnode/raft/1", each on a goroutine of its own. Only members
// get here. ctx ends when the swarm closes, and with it every stream; f must then return, and the
// stream is closed after it. A second Handle of one protocol replaces the first.
func (s *Streams) Handle(proto string, f func(ctx context.Context, from plan.PeerID, stream Stream)) {
	room := make(chan struct{}, maxHandlers)
	s.Host.SetStreamHandler(protocol.ID(proto), s.MembersOnly(func(st network.Stream) {
		select {
		case room <- struct{}{}:
		default:
			s.Log.Warn("swarm: too many streams", "protocol", proto, "limit", maxHandlers)
			st.Reset()
			return
		}
		defer func() { <-room }()
		s.Peers.Use(st.Conn().RemotePeer())
		w := stream{st}
		defer w.Close()
		f(s.Tasks.Context, plan.PeerID(st.Conn().RemotePeer().String()), w)
	}))
}

// MembersOnly returns a handler that resets the streams of peers that are not members, unread, and counts
// itself among the swarm's goroutines.
func (s *Streams) MembersOnly(f network.StreamHandler) network.StreamHandler {
	return func(st network.Stream) {
		if !s.Tasks.Enter() {
			st.Reset()
			return
		}
		defer s.Tasks.Leave()
		ctx, cancel := context.WithTimeout(s.Tasks.Context, admission.TimeLimit)
		err := s.Peers.Wait(ctx, st.Conn().RemotePeer())
		cancel()
		if err != nil {
			s.Log.Debug("swarm: stream refused", "peer", st.Conn().RemotePeer(), "protocol", st.Protocol(), "err", err)
			st.Reset()
			return
		}
		f(st)
	}
}

// Open opens a stream to a connected member; a relayed connection will do. When the member speaks another
// version of the protocol the error wraps version.Err. A peer that does not speak it at all shows as an
// error here or at the first Read.
func (s *Streams) Open(ctx context.Context, p peer.ID, proto protocol.ID) (network.Stream, error) {
	ctx = network.WithAllowLimitedConn(network.WithNoDial(ctx, "member"), "control")
	st, err := s.Host.NewStream(ctx, p, proto)
	if err != nil {
		return nil, Versions(s.Host, p, proto, err)
	}
	return stream{st}, nil
}

// Versions returns the error of a stream that could not be opened. When the peer announced another version of
// the protocol, such as /pnode/raft/2 for /pnode/raft/1, the error says so.
func Versions(h host.Host, p peer.ID, proto protocol.ID, err error) error {
	if !errors.As(err, new(multistream.ErrNotSupported[protocol.ID])) {
		return err
	}
	name, ours := path.Split(string(proto))
	mine, _ := strconv.Atoi(ours)
	spoken, _ := h.Peerstore().GetProtocols(p)
	for _, other := range spoken {
		if prefix, v := path.Split(string(other)); prefix == name {
			if theirs, numErr := strconv.Atoi(v); numErr == nil && theirs != mine {
				return fmt.Errorf("%w: %w", err, version.Unknown("protocol "+strings.TrimSuffix(name, "/")+" of peer "+p.String(), theirs, mine))
			}
		}
	}
	return err
}

// closeTime bounds how long Close waits for the peer's word on the protocol of a fresh stream. A peer that died
// never gives it, and libp2p waits for ten seconds.
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
