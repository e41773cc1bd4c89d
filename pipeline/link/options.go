package link

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
	"pnode/swarm/transport"
)

// ALPN is the application protocol of the data plane.
const ALPN = "pnode-data/1"

// Network makes connections with the identity of the peer verified on both ends.
type Network interface {
	// Self returns this node's own identity.
	Self() plan.PeerID
	// Dial connects to an admitted peer under ALPN, over one transport; over "" the network chooses.
	Dial(ctx context.Context, peer plan.PeerID, over plan.Transport) (transport.Conn, error)
	// Transports returns over what the peer may be reached, preferred first. It is empty where the network has one
	// transport only, or does not know yet.
	Transports(peer plan.PeerID) []plan.Transport
	// Accept waits for the next connection of an admitted peer. An error ends
	// Endpoint.Run: what concerns one connection only is not an error.
	Accept(ctx context.Context) (transport.Conn, plan.PeerID, error)
}

// What can go wrong; ErrLost, ErrLeft and ErrClosed unwrap to net.ErrClosed. ErrGone and ErrGaveUp are reasons for Drop.
var (
	ErrClosed     = fmt.Errorf("link: session closed: %w", net.ErrClosed)
	ErrGone       = errors.New("known to be gone")
	ErrGaveUp     = errors.New("it has given the generation up")
	ErrLost       = fmt.Errorf("link: peer lost: %w", net.ErrClosed)
	ErrLeft       = fmt.Errorf("link: peer has left the generation: %w", net.ErrClosed)
	ErrGeneration = errors.New("link: wrong generation")
	ErrStranger   = errors.New("link: peer is not part of the generation")
	ErrDuplicate  = errors.New("link: message is received only once")
	ErrTooLarge   = errors.New("link: message too large")
	ErrMissing    = errors.New("link: peer does not have the chunk")
	ErrBusy       = errors.New("link: peer answers too many requests at once")
)

// Reasons that travel with a closed connection.
const (
	codeShutdown transport.Code = iota
	codeCorrupt
	codeSilent
	codeReplaced
	codeStranger
)

// Reasons that travel with a stream that is cut: streamLeft says that its session reads no
// more, streamOver that it sends no more either.
const (
	streamLeft transport.Code = iota + 1
	streamBusy
	streamRefused
	streamCut
	streamReborn
	streamOver
)

// Options are an endpoint's settings; the zero value of each means its default.
type Options struct {
	// PeerTimeout is how long a peer may be silent or unreachable before it is lost; a peer
	// that is known to be dead is lost at once. Default 15 s.
	PeerTimeout time.Duration
	// LeastTimeout is how long a peer may be silent whose traffic shows that it never is for so long; what is learned lies
	// between the two. Default PeerTimeout.
	LeastTimeout time.Duration
	// ConnTimeout is how long a connection may be silent before it is replaced, and how long
	// one attempt to make one may take. Default 4 s, at most a third of PeerTimeout.
	ConnTimeout time.Duration
	// Heartbeat is the interval of heartbeats and of looking for silent peers. Default 1 s.
	Heartbeat time.Duration
	// CloseTimeout bounds how long closing a session waits for queued messages to be read
	// by the peers. Default 1 s.
	CloseTimeout time.Duration
	// ChunkTimeout is how long a chunk stream may stand still. Default 20 s.
	ChunkTimeout time.Duration
	// QueueBytes and QueueFrames bound what one peer has not acknowledged in one class; a
	// single larger message is accepted by an empty outbox. Defaults 64 MiB, 1024.
	QueueBytes  int
	QueueFrames int
	// InboxBytes and InboxFrames bound what has come from one peer in one class and is not
	// yet received. Defaults 256 MiB, 4096.
	InboxBytes  int
	InboxFrames int
	// MaxTensorBytes bounds one message. Default wire.MaxTensorBytes.
	MaxTensorBytes int
	// ParkedStreams bounds the streams of newer generations kept for each peer. Default 340,
	// two generations.
	ParkedStreams int
	// ChunkStreams bounds how many chunk requests of one peer are answered at once; this
	// side asks a peer with at most half of it at once. Default 8.
	ChunkStreams int
	// Log receives lost peers, refused streams, and over which transport data goes. Default: nothing is logged.
	Log *slog.Logger
	// Name returns what people call a peer. Default: the end of its ID.
	Name func(plan.PeerID) string
}

func (o Options) withDefaults() Options {
	setDefault(&o.PeerTimeout, 15*time.Second)
	setDefault(&o.LeastTimeout, o.PeerTimeout)
	setDefault(&o.ConnTimeout, min(4*time.Second, o.PeerTimeout/3))
	setDefault(&o.Heartbeat, time.Second)
	setDefault(&o.CloseTimeout, time.Second)
	setDefault(&o.ChunkTimeout, 20*time.Second)
	setDefault(&o.QueueBytes, 64<<20)
	setDefault(&o.QueueFrames, 1024)
	setDefault(&o.InboxBytes, 256<<20)
	setDefault(&o.InboxFrames, 4096)
	setDefault(&o.MaxTensorBytes, wire.MaxTensorBytes)
	setDefault(&o.ParkedStreams, 2*maxConns*(len(wire.SessionClasses)+1))
	setDefault(&o.ChunkStreams, 8)
	if o.Name == nil {
		o.Name = plan.PeerID.Short
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// interval returns the time between heartbeats, and between looks for silent peers.
func (o Options) interval() time.Duration { return min(o.Heartbeat, o.PeerTimeout/4) }

func setDefault[T ~int | ~int64](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}
