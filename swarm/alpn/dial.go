package alpn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	"github.com/quic-go/quic-go"

	"pnode/planner/plan"
	"pnode/swarm/transport"
	"pnode/swarm/version"
)

const (
	// dialTime bounds the try of one address, dialStagger is when the next one begins.
	dialTime    = 5 * time.Second
	dialStagger = 500 * time.Millisecond

	// TLS alerts as QUIC carries them (RFC 9001, 4.8), with which a peer answers an ALPN that it does not listen
	// for: libp2p's listener sends internal_error, others no_application_protocol.
	alertInternal quic.TransportErrorCode = 0x100 + 80
	alertNoALPN   quic.TransportErrorCode = 0x100 + 120
)

// Dial opens a connection to a member, whose peer ID the handshake proves: first where libp2p is connected to
// it, which is where a hole was punched, then at its other addresses. Without a UDP path the error wraps
// ErrNoUDP. Over is one of Transports, or "" for the best that works.
func (t *Transport) Dial(ctx context.Context, p plan.PeerID, over plan.Transport) (transport.Conn, error) {
	if over != "" && !slices.Contains(t.Transports(p), over) {
		return nil, fmt.Errorf("swarm: dial %s on %s: there is no way over %v, want one of %v", p, t.ALPN, over, t.Transports(p))
	}
	id, err := t.Reach(ctx, p)
	if err == nil {
		var conn transport.Conn
		if conn, err = t.first(ctx, id, t.candidates(id)); err == nil {
			return conn, nil
		}
	}
	return nil, fmt.Errorf("swarm: dial %s on %s: %w", p, t.ALPN, err)
}

// Transports returns over what a member may be reached, the preferred one first.
func (t *Transport) Transports(plan.PeerID) []plan.Transport { return []plan.Transport{plan.QUIC} }

// first dials the addresses in turn, each when the one before has failed or taken dialStagger, and returns the
// first connection. The others are given up.
func (t *Transport) first(ctx context.Context, p peer.ID, addrs []ma.Multiaddr) (transport.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type outcome struct {
		conn transport.Conn
		err  error
	}
	results := make(chan outcome)
	errs, pending := []error{ErrNoUDP}, 0
	for len(addrs) > 0 || pending > 0 {
		var next <-chan time.Time
		if len(addrs) > 0 {
			addr := addrs[0]
			addrs = addrs[1:]
			begun := t.Tasks.Run(func(context.Context) {
				conn, err := t.dialAddr(ctx, p, addr)
				select {
				case results <- outcome{conn, err}:
				case <-ctx.Done():
					if conn != nil {
						conn.Close(codeClosed, "another was faster")
					}
				}
			})
			if !begun {
				return nil, net.ErrClosed
			}
			pending++
			next = time.After(dialStagger)
		}
		select {
		case r := <-results:
			pending--
			if r.err == nil {
				return r.conn, nil
			}
			errs = append(errs, r.err)
		case <-next:
		case <-ctx.Done():
			return nil, errors.Join(append(errs, ctx.Err())...)
		}
	}
	return nil, errors.Join(errs...)
}

// candidates lists p's QUIC addresses without repetition.
func (t *Transport) candidates(p peer.ID) []ma.Multiaddr {
	var all, out []ma.Multiaddr
	for _, c := range t.Host.Network().ConnsToPeer(p) {
		all = append(all, c.RemoteMultiaddr())
	}
	for _, a := range append(all, t.Host.Peerstore().Addrs(p)...) {
		if isQUIC(a) && !slices.ContainsFunc(out, a.Equal) {
			out = append(out, a)
		}
	}
	return out
}

func (t *Transport) dialAddr(ctx context.Context, p peer.ID, a ma.Multiaddr) (transport.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	conf, verified := t.tls(p)
	quicConn, err := t.Host.QUIC.DialQUIC(ctx, a, conf, anyWindow)
	if err != nil {
		if alert := new(quic.TransportError); errors.As(err, &alert) && alert.Remote && (alert.ErrorCode == alertInternal || alert.ErrorCode == alertNoALPN) {
			err = fmt.Errorf("%w: the peer does not speak %s: fetch the same release of pnode for both ends: %w", version.Err, t.ALPN, err)
		}
		return nil, fmt.Errorf("%s: %w", a, err)
	}
	conn := transport.QUIC(quicConn)
	if !verified() {
		conn.Close(CodeNotMember, "no proof of identity")
		return nil, fmt.Errorf("%s: peer %s gave no proof of identity", a, p)
	}
	t.track(conn, p)
	t.remember(conn, p, true)
	return conn, nil
}
