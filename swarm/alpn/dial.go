package alpn

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	ma "github.com/multiformats/go-multiaddr"
	madns "github.com/multiformats/go-multiaddr-dns"
	manet "github.com/multiformats/go-multiaddr/net"
	"github.com/quic-go/quic-go"

	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/hole"
	"pnode/swarm/host"
	"pnode/swarm/mux"
	"pnode/swarm/tcp"
	"pnode/swarm/transport"
	"pnode/swarm/version"
)

const (
	// dialTime bounds the try of one address, addrStagger is when that of the next one begins (RFC 8305, section 5), and
	// dialStagger when the next transport does.
	dialTime    = 5 * time.Second
	addrStagger = 100 * time.Millisecond
	dialStagger = 500 * time.Millisecond
	// holeDelay is how much later than an address a punched hole is tried.
	holeDelay = 300 * time.Millisecond
	// noAnswer is how long a transport may be silent before a caller that gives up speaks against it.
	noAnswer = 2 * time.Second
	// maxAddrs bounds the addresses of a transport that are tried: peers say what they like.
	maxAddrs = 16
	// maxAddrsBack bounds them where the peer itself asks to be dialed.
	maxAddrsBack = 4
	// relayTime bounds the way through another member, which asks it first.
	relayTime = 10 * time.Second

	// TLS alerts as QUIC carries them (RFC 9001, 4.8), with which a peer answers an ALPN that it does not listen
	// for: libp2p's listener sends internal_error, others no_application_protocol.
	alertInternal quic.TransportErrorCode = 0x100 + 80
	alertNoALPN   quic.TransportErrorCode = 0x100 + 120
)

var errNoAddress = errors.New("no address of the peer is known")

// try makes a connection.
type try func(context.Context) (transport.Conn, error)

// Dial opens a connection to a member, whose peer ID the handshake proves. Over is one of Transports, or "" for the best
// that works: the transports are tried in their order, each when the one before has failed or taken half a second.
// Addresses come in turn too, a tenth of a second apart, first where libp2p is connected, which is where a hole was punched. The
// error tells of every try. A connection that comes when the caller has given up is kept for the next dial, for a while.
func (t *Transport) Dial(ctx context.Context, p plan.PeerID, over plan.Transport) (transport.Conn, error) {
	return t.dial(ctx, p, over, nil)
}

// DialBack is Dial over what works best, for a member that asks to be dialed: at the IP addresses where it is connected from,
// and at a few public ones that it says of itself. Others, such as those of a network that only this node reaches, are
// not dialed because a member says so.
func (t *Transport) DialBack(ctx context.Context, p plan.PeerID) (transport.Conn, error) {
	id, err := peer.Decode(string(p))
	if err != nil {
		return nil, fmt.Errorf("swarm: dial %s on %s: %w", p, t.ALPN, err)
	}
	return t.dial(ctx, p, "", ownOrPublic(t.Host, id))
}

// ownOrPublic allows the addresses that a peer is directly connected from, and public ones.
func ownOrPublic(h *host.Host, p peer.ID) tcp.Allowed {
	var from []netip.Addr
	for _, c := range h.Network().ConnsToPeer(p) {
		if _, err := c.RemoteMultiaddr().ValueForProtocol(ma.P_CIRCUIT); err == nil {
			continue
		}
		if ip, ok := ipOf(c.RemoteMultiaddr()); ok {
			from = append(from, ip)
		}
	}
	return func(ip netip.Addr) bool {
		a, err := manet.FromIP(ip.AsSlice())
		return slices.Contains(from, ip) || err == nil && manet.IsPublicAddr(a)
	}
}

// ipOf returns the IP address of a multiaddr, if it has one rather than a name.
func ipOf(a ma.Multiaddr) (netip.Addr, bool) {
	ip, err := manet.ToIP(a)
	if err != nil {
		return netip.Addr{}, false
	}
	addr, ok := netip.AddrFromSlice(ip)
	return addr.Unmap(), ok
}

func (t *Transport) dial(ctx context.Context, p plan.PeerID, over plan.Transport, allowed tcp.Allowed) (transport.Conn, error) {
	id, err := t.Reach(ctx, p)
	if err != nil {
		t.Log.Debug("swarm: not reached for a dial", "alpn", t.ALPN, "peer", p, "err", err)
		return nil, fmt.Errorf("swarm: dial %s on %s: %w", p, t.ALPN, admission.InWords(err))
	}
	conn := t.late.take(id, over)
	if conn != nil {
		return conn, nil
	}
	if over != "" {
		conn, err = t.dialOver(ctx, id, over, allowed)
	} else {
		conn, err = t.dialBest(ctx, id, t.transports(id), allowed)
	}
	if err != nil {
		return nil, fmt.Errorf("swarm: dial %s on %s: %w", p, t.ALPN, err)
	}
	return conn, nil
}

// Transports returns over what a member may be reached, the one that Dial tries first first.
func (t *Transport) Transports(p plan.PeerID) []plan.Transport {
	id, err := peer.Decode(string(p))
	if err != nil {
		return nil
	}
	return t.transports(id)
}

// Why returns why a member is reached over a transport rather than a better one, as in "UDP gets no answer"; empty where
// nothing is to be said.
func (t *Transport) Why(p plan.PeerID, over plan.Transport) string {
	why := t.Choice.Why(p, over)
	if id, err := peer.Decode(string(p)); err == nil && why == "" && over != plan.QUIC && t.Choice.Tried(p, over) && len(t.candidates(id, plan.QUIC)) == 0 {
		why = "UDP " + inWords(plan.QUIC, errNoAddress)
	}
	holes := t.open(func(conn transport.Conn, id peer.ID) bool {
		_, through := conn.RemoteAddr().(hole.Addr)
		return through && plan.PeerID(id.String()) == p
	})
	if over == plan.TCP && len(holes) > 0 {
		return strings.TrimPrefix(why+"; through a punched hole, which control shares", "; ")
	}
	return why
}

func (t *Transport) transports(p peer.ID) []plan.Transport {
	all := slices.DeleteFunc(slices.Clone(plan.Transports), func(over plan.Transport) bool {
		switch over {
		case plan.Relay:
			return t.Relay == nil
		case plan.TCP:
			return len(t.candidates(p, over)) == 0 && !t.punched(p)
		default:
			return len(t.candidates(p, over)) == 0
		}
	})
	return t.Choice.Order(plan.PeerID(p.String()), all)
}

// dialBest dials over each of the transports in turn and returns the first connection. A try of one before goes on: what
// comes of it counts for the next dial.
func (t *Transport) dialBest(ctx context.Context, p peer.ID, all []plan.Transport, allowed tcp.Allowed) (transport.Conn, error) {
	if len(all) == 0 {
		return nil, errNoAddress
	}
	if len(all) == 1 && all[0] != plan.Relay {
		return t.dialOver(ctx, p, all[0], allowed)
	}
	var tries []try
	for _, over := range all {
		tries = append(tries, func(context.Context) (transport.Conn, error) { return t.dialOver(t.Tasks.Context, p, over, allowed) })
	}
	conn, err := t.first(ctx, dialStagger, tries, func(conn transport.Conn) { t.late.keep(p, conn) })
	if err != nil {
		return nil, err
	}
	for _, over := range all {
		if over == conn.Transport() {
			break
		}
		t.Choice.Slow(plan.PeerID(p.String()), over)
	}
	return conn, nil
}

// dialOver dials over one transport, and notes what comes of it.
func (t *Transport) dialOver(ctx context.Context, p peer.ID, over plan.Transport, allowed tcp.Allowed) (transport.Conn, error) {
	begun := time.Now()
	conn, err := t.dialAddrs(ctx, p, over, allowed)
	if err != nil {
		failed := &dialError{over, inWords(over, err), err}
		t.Log.Debug("swarm: dial failed", "alpn", t.ALPN, "over", over, "peer", p, "why", failed.why, "err", err)
		late := errors.Is(ctx.Err(), context.DeadlineExceeded) && time.Since(begun) >= noAnswer
		if late || ctx.Err() == nil {
			t.Choice.Failed(plan.PeerID(p.String()), over, failed.why)
		}
		return nil, failed
	}
	t.Choice.Worked(plan.PeerID(p.String()), over)
	return conn, nil
}

// dialAddrs dials all addresses of one transport.
func (t *Transport) dialAddrs(ctx context.Context, p peer.ID, over plan.Transport, allowed tcp.Allowed) (transport.Conn, error) {
	if over == plan.Relay {
		if t.Relay == nil {
			return nil, errors.New("no member forwards connections here")
		}
		ctx, cancel := context.WithTimeout(ctx, relayTime)
		defer cancel()
		raw, err := t.Relay(ctx, plan.PeerID(p.String()))
		if err != nil {
			return nil, err
		}
		return t.Client(ctx, raw, p, over)
	}
	addrs := t.candidates(p, over)
	if allowed != nil {
		addrs = slices.DeleteFunc(addrs, func(a ma.Multiaddr) bool {
			ip, literal := ipOf(a)
			return literal && !allowed(ip)
		})
		addrs = addrs[:min(len(addrs), maxAddrsBack)]
	}
	var tries []try
	for _, a := range addrs {
		tries = append(tries, func(ctx context.Context) (transport.Conn, error) { return t.dialAddr(ctx, p, a, over, allowed) })
	}
	if over == plan.TCP && t.punched(p) { // a connection of its own is better, where there is a way for it
		tries = append(tries, func(ctx context.Context) (transport.Conn, error) { return t.dialHole(ctx, p) })
	}
	if len(tries) == 0 {
		return nil, errNoAddress
	}
	return t.first(ctx, addrStagger, tries, nil)
}

// first makes the tries in turn, each when the one before has failed or taken a time, and returns the first connection.
// The context of the others ends. What comes after the caller has given up is handed to late, if that is not nil.
func (t *Transport) first(ctx context.Context, stagger time.Duration, tries []try, late func(transport.Conn)) (transport.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type outcome struct {
		conn transport.Conn
		err  error
	}
	results := make(chan outcome)
	var done atomic.Bool
	var errs []error
	for pending := 0; len(tries) > 0 || pending > 0; {
		var next <-chan time.Time
		if len(tries) > 0 {
			dial := tries[0]
			tries = tries[1:]
			begun := t.Tasks.Run(func(context.Context) {
				conn, err := dial(ctx)
				select {
				case results <- outcome{conn, err}:
				case <-ctx.Done():
					switch {
					case conn == nil:
					case late != nil && !done.Load():
						late(conn)
					default:
						conn.Close(codeClosed, "another was faster")
					}
				}
			})
			if !begun {
				return nil, net.ErrClosed
			}
			pending++
			next = time.After(stagger)
		}
		select {
		case r := <-results:
			pending--
			if r.err == nil {
				done.Store(true)
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

// candidates lists p's addresses of a transport without repetition, at most maxAddrs, those to try first first: where
// libp2p is connected, then in libp2p's order.
func (t *Transport) candidates(p peer.ID, over plan.Transport) []ma.Multiaddr {
	var of func(ma.Multiaddr) bool
	switch {
	case over == plan.QUIC:
		of = isQUIC
	case over == plan.TCP && t.Host.TCP != nil:
		of = t.Host.TCP.CanConnect
	case over == plan.WebSocket && t.Host.TCP != nil:
		of = t.Host.TCP.CanConnectWeb
	default:
		return nil
	}
	var all, out []ma.Multiaddr
	for _, c := range t.Host.Network().ConnsToPeer(p) {
		if over == plan.QUIC || c.Stat().Direction == network.DirOutbound { // nobody listens where a TCP connection comes from
			all = append(all, c.RemoteMultiaddr())
		}
	}
	known := swarm.DefaultDialRanker(ma.FilterAddrs(admission.Acceptable(p, t.Host.Peerstore().Addrs(p)), of))
	slices.SortStableFunc(known, func(a, b network.AddrDelay) int { return cmp.Compare(a.Delay, b.Delay) })
	for _, k := range known {
		all = append(all, k.Addr)
	}
	for _, a := range all {
		if of(a) && !slices.ContainsFunc(out, a.Equal) && len(out) < maxAddrs {
			out = append(out, a)
		}
	}
	return out
}

// punched reports whether a peer is connected through a hole over TCP that connections of the ALPN can use.
func (t *Transport) punched(p peer.ID) bool { return t.Hole != nil && t.Host.PunchedTCP(p) }

// dialHole makes a connection within libp2p's own, through a punched hole.
func (t *Transport) dialHole(ctx context.Context, p peer.ID) (transport.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	select {
	case <-time.After(holeDelay):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	raw, err := t.Hole(ctx, p)
	if err != nil {
		return nil, err
	}
	return t.Client(ctx, raw, p, plan.TCP)
}

func (t *Transport) dialAddr(ctx context.Context, p peer.ID, a ma.Multiaddr, over plan.Transport, allowed tcp.Allowed) (transport.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	if slices.ContainsFunc(t.Host.Network().ConnsToPeer(p), func(c network.Conn) bool {
		return c.Stat().Direction == network.DirOutbound && c.RemoteMultiaddr().Equal(a)
	}) {
		allowed = nil // p has proved itself there, also under a name that only a proxy knows
	}
	var conn transport.Conn
	var err error
	var raw net.Conn
	switch over {
	case plan.QUIC:
		var at ma.Multiaddr
		if at, err = resolved(ctx, a, allowed); err == nil {
			conn, err = t.dialQUIC(ctx, p, at)
		}
	case plan.TCP:
		raw, err = t.Host.TCP.Connect(ctx, a, allowed)
	case plan.WebSocket:
		raw, err = t.Host.TCP.ConnectWeb(ctx, a, allowed)
	}
	if raw != nil {
		conn, err = t.Client(ctx, raw, p, over)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a, err)
	}
	t.proved.remember(conn, p, a)
	return conn, nil
}

// resolved looks the name of an address up, if it has one, and returns one that is allowed.
func resolved(ctx context.Context, a ma.Multiaddr, allowed tcp.Allowed) (ma.Multiaddr, error) {
	if !madns.Matches(a) {
		return a, nil
	}
	all, err := madns.DefaultResolver.Resolve(ctx, a)
	if err == nil && len(all) == 0 {
		err = errors.New("the name has no address")
	}
	if err == nil && allowed != nil {
		all = slices.DeleteFunc(all, func(a ma.Multiaddr) bool {
			ip, ok := ipOf(a)
			return !ok || !allowed(ip)
		})
		if len(all) == 0 {
			err = tcp.ErrNotAllowed
		}
	}
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

func (t *Transport) dialQUIC(ctx context.Context, p peer.ID, a ma.Multiaddr) (transport.Conn, error) {
	conn, proved, err := t.handshake(ctx, p, a)
	if err != nil {
		if alert := new(quic.TransportError); errors.As(err, &alert) && alert.Remote && (alert.ErrorCode == alertInternal || alert.ErrorCode == alertNoALPN) {
			err = otherVersion(t.ALPN, err)
		}
		return nil, err
	}
	if !proved {
		conn.Close(transport.CodeNotMember, "no proof of identity")
		return nil, errNoProof(p)
	}
	t.track(conn, p)
	return conn, nil
}

// handshake connects to an address of QUIC, and reports whether the other end proved to be p.
func (t *Transport) handshake(ctx context.Context, p peer.ID, a ma.Multiaddr) (transport.Conn, bool, error) {
	if sim := t.Host.Simulated; sim != nil && sim.Direct != nil {
		conn, other, err := sim.Direct.Dial(ctx, t.ALPN, t.Host.ID(), a)
		return conn, other == p, err
	}
	conf, verified := t.tls(p)
	conn, err := t.Host.QUIC.DialQUIC(ctx, a, conf, t.mayGrow)
	if err != nil {
		return nil, false, err
	}
	return transport.QUIC(conn), verified(), nil
}

// Client makes a connection with p on a stream of bytes whose other end is given to Serve: TLS 1.3, in which both prove
// their peer ID, so that whoever carries the bytes reads nothing. It owns raw from now on, and closes it if it fails.
func (t *Transport) Client(ctx context.Context, raw net.Conn, p peer.ID, over plan.Transport) (transport.Conn, error) {
	conf, verified := t.tls(p)
	secured := tls.Client(raw, conf)
	err := secured.HandshakeContext(ctx)
	switch {
	case err != nil:
		if remote := new(net.OpError); errors.As(err, &remote) && remote.Op == "remote error" && strings.Contains(err.Error(), "no application protocol") {
			err = otherVersion(t.ALPN, err)
		}
	case !verified():
		err = errNoProof(p)
	case secured.ConnectionState().NegotiatedProtocol != t.ALPN:
		err = otherVersion(t.ALPN, errors.New("no protocol was agreed on"))
	}
	if err != nil {
		raw.Close()
		return nil, err
	}
	conn := mux.New(secured, mux.Config{Dialer: true, Transport: over, RemoteAddr: raw.RemoteAddr(), FixedWindows: t.FixedWindows})
	t.track(conn, p)
	return conn, nil
}

func errNoProof(p peer.ID) error { return fmt.Errorf("peer %s gave no proof of identity", p) }

// otherVersion says what it means that a peer does not know the ALPN.
func otherVersion(alpn string, err error) error {
	return fmt.Errorf("%w: the peer does not speak %s: fetch the same release of pnode for both ends: %w", version.Err, alpn, err)
}
