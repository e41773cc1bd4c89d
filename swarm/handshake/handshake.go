package handshake

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"

	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/peerstore"
	"pnode/swarm/streams"
	"pnode/swarm/tasks"
	"pnode/swarm/version"
)

const (
	helloProtocol = protocol.ID("/pnode/hello/1")
	memberTag     = "pnode member"
	// The pauses before a greeting whose connection vanished is tried again.
	firstPause   = 20 * time.Millisecond
	longestPause = time.Second
	// sameTime is how far apart the connections of two peers that dial each other may be.
	sameTime = 3 * time.Second
	// admitTime bounds the question whether a peer may come in. The peer waits for the answer until admission.TimeLimit.
	admitTime = 6 * time.Second
)

// Config holds what a Greeter needs.
type Config struct {
	Host host.Host
	Run  admission.Run
	// Capability is this node's own, encoded.
	Capability []byte
	// Admit answers for a verified capability whether its peer came, or may come, by its invite. It may ask the other
	// members, within admitTime.
	Admit func(context.Context, admission.Capability) error
	// Offer returns the offer for an invite of this bearer key, or the refusal; false for a key that nobody knows.
	// Without it no claim is answered.
	Offer func(newcomer plan.PeerID, bearer []byte) (admission.Offer, bool)
	Peers *admission.Peers
	Store *peerstore.Store
	// Known, if not nil, names peers for whom places are kept beside those in the store.
	Known func(peer.ID) bool
	Tasks *tasks.Group
	Log   *slog.Logger
	// Joined is called with each new member, Left when one has left.
	Joined func(peer.ID)
	Left   func(peer.ID)
	// Now returns the time by which memberships end; nil is this machine's clock.
	Now func() time.Time
}

// Greeter greets the peers that this node dials, answers those that dial it, and disconnects who is not
// admitted in time.
type Greeter struct {
	Config
	instance admission.Instance
	limits   *limits
}

// Start greets and answers until the swarm closes.
func Start(cfg Config) error {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	g := &Greeter{Config: cfg, limits: newLimits()}
	if _, err := rand.Read(g.instance[:]); err != nil {
		return fmt.Errorf("swarm: start: %w", err)
	}
	g.Host.SetStreamHandler(helloProtocol, func(st network.Stream) { g.serve(st, g.answer) })
	if g.Offer != nil {
		g.Host.SetStreamHandler(claimProtocol, func(st network.Stream) { g.serve(st, g.answerClaim) })
	}
	g.Host.Network().Notify(&network.NotifyBundle{
		ConnectedF: func(_ network.Network, c network.Conn) { g.connected(c) },
		DisconnectedF: func(n network.Network, c network.Conn) {
			p := c.RemotePeer()
			if g.Peers.Leave(p, func() bool { return n.Connectedness(p) != network.NotConnected }) {
				g.Host.ConnManager().Unprotect(p, memberTag)
				g.Log.Info("swarm: member disconnected", "peer", p)
				g.Left(p)
			}
		},
	})
	for _, c := range g.Host.Network().Conns() { // those made before Notify
		g.connected(c)
	}
	return nil
}

// serve answers a stream of a peer that may be unknown, if there is a place for it.
func (g *Greeter) serve(st network.Stream, answer func(network.Stream)) {
	if leave, ok := g.enter(st); ok {
		defer leave()
		answer(st)
	}
}

// connected notes a connection. The side that dialed greets, on every connection: the other may have forgotten
// what an older one established.
func (g *Greeter) connected(c network.Conn) {
	p := c.RemotePeer()
	v, first := g.Peers.Arrive(p)
	if first {
		g.Tasks.Run(func(ctx context.Context) { g.guard(ctx, p, v) })
	}
	if c.Stat().Direction == network.DirOutbound {
		g.Tasks.Run(func(ctx context.Context) { g.greet(ctx, p) })
	}
}

// guard disconnects a peer that is not a member in time. A refused one has until then to read why, and to hang
// up by itself.
func (g *Greeter) guard(ctx context.Context, p peer.ID, v *admission.Visit) {
	deadline := time.NewTimer(admission.TimeLimit)
	defer deadline.Stop()
	decided := v.Decided
	for {
		select {
		case <-decided:
			if !g.Peers.Stranger(p, v) {
				return // it is in, or gone: the next visit has its own time
			}
			decided = nil
		case <-deadline.C:
			if g.Peers.Stranger(p, v) {
				g.disconnect(p)
			}
			return
		case <-ctx.Done():
			return
		}
	}
}

// greet introduces this node to a peer it dialed, and decides about the answer. A greeting whose connection is
// closed says nothing about the peer: of two that dial each other one connection may go, and the greeting
// is tried again on what is left.
func (g *Greeter) greet(ctx context.Context, p peer.ID) {
	ctx, cancel := context.WithTimeout(ctx, admission.TimeLimit)
	defer cancel()
	decided, err := g.exchange(ctx, p)
	for pause := firstPause; !decided; pause = min(2*pause, longestPause) {
		g.Log.Debug("swarm: greeting lost", "peer", p, "err", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return // the guard sees to it
		}
		if g.Host.Network().Connectedness(p) == network.NotConnected {
			return
		}
		decided, err = g.exchange(ctx, p)
	}
	if err == nil || g.Tasks.Context.Err() != nil || g.Peers.Member(p) {
		return // done, or too late, or the peer's own greeting was faster
	}
	g.Log.Warn("swarm: not admitted with peer", "peer", p, "err", err)
	g.refuse(p, err)
	g.disconnect(p)
}

// exchange sends one hello and decides about the reply. decided reports whether there is a verdict, this node's
// or the peer's; a nil error is a welcome.
func (g *Greeter) exchange(ctx context.Context, p peer.ID) (decided bool, err error) {
	ctx = network.WithAllowLimitedConn(network.WithNoDial(ctx, "greeting"), "greeting")
	st, err := g.Host.NewStream(ctx, p, helloProtocol)
	if err != nil {
		if err = streams.Versions(g.Host, p, helloProtocol, err); errors.Is(err, version.Err) {
			return true, fmt.Errorf("%w: %w", admission.ErrRefused, err)
		}
		return false, fmt.Errorf("open %s: %w", helloProtocol, err)
	}
	stop := context.AfterFunc(ctx, func() { st.Reset() }) // ends a blocked read too
	defer stop()
	var reply admission.Reply
	var b []byte
	if err = streams.WriteMessage(st, g.hello().Append(nil)); err == nil {
		b, err = streams.ReadMessage(st, admission.MaxReplyBytes)
	}
	if err == nil {
		reply, err = admission.DecodeReply(b)
	}
	if err == nil {
		err = reply.Err()
	}
	if err != nil {
		st.Reset()
		return admission.IsRefusal(err), err
	}
	defer st.Close()
	err = g.judge(ctx, p, reply.Hello, st.Conn())
	return !errors.Is(err, admission.ErrNotMember), err
}

// answer serves one greeting.
func (g *Greeter) answer(st network.Stream) {
	defer st.Close()
	p := st.Conn().RemotePeer()
	b, err := readFirst(st, admission.MaxHelloBytes)
	if err != nil {
		st.Reset()
		return
	}
	theirs, err := admission.DecodeHello(b)
	if err == nil {
		err = g.judge(g.Tasks.Context, p, theirs, st.Conn())
	}
	if err == nil {
		g.dropOlder(p, st.Conn())
	}
	if errors.Is(err, admission.ErrNotMember) { // its connections are gone, this one too
		st.Reset()
		return
	}
	reply := admission.Reply{Hello: g.hello()}
	if err != nil {
		reply = admission.Refusal(err)
		g.Log.Info("swarm: peer refused", "peer", p, "addr", st.Conn().RemoteMultiaddr(), "err", err)
		g.refuse(p, err)
	}
	if err := streams.WriteMessage(st, reply.Append(nil)); err != nil {
		st.Reset()
	}
}

// dropOlder closes the connections with a member that were there when it dialed: it dials only when it has none, because
// its address, or its NAT's, has changed. Two peers that dial each other at the same time keep both.
func (g *Greeter) dropOlder(p peer.ID, newest network.Conn) {
	if newest.Stat().Limited || newest.Stat().Direction != network.DirInbound {
		return
	}
	for _, c := range g.Host.Network().ConnsToPeer(p) {
		if !c.Stat().Limited && newest.Stat().Opened.Sub(c.Stat().Opened) > sameTime {
			g.Log.Info("swarm: member connected anew", "peer", p, "addr", newest.RemoteMultiaddr(), "before", c.RemoteMultiaddr())
			c.Close()
		}
	}
}

// judge has admission decided on what a peer showed, and makes it a member. The error is ErrNotMember when the
// peer has left meanwhile, which is no verdict.
func (g *Greeter) judge(ctx context.Context, p peer.ID, h admission.Hello, conn network.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, admitTime)
	defer cancel()
	c, err := admission.Decide(admission.Question{
		Run: g.Run, Peer: p, Capability: h.Capability, Blocked: g.Peers.Removal(p), Now: g.Now(),
		Admit: func(c admission.Capability) error { return g.Admit(ctx, c) },
	})
	if err != nil {
		return err
	}
	first, replaced, err := g.Peers.Admit(p, c, h.Instance)
	if err != nil {
		return err
	}
	if replaced { // a restarted node knows nothing of the connections before this one
		for _, older := range g.Host.Network().ConnsToPeer(p) {
			if older.Stat().Opened.Before(conn.Stat().Opened) {
				older.Close()
			}
		}
	}
	if g.Store.Learn(c, peerstore.Believable(h.Addrs, conn.RemoteMultiaddr())) {
		g.Store.Tried(p, nil, time.Now())
	}
	if first {
		g.Log.Info("swarm: member connected", "peer", p, "addr", conn.RemoteMultiaddr())
		g.Host.ConnManager().Protect(p, memberTag)
		g.Joined(p)
	}
	return nil
}

// hello returns what this node says about itself.
func (g *Greeter) hello() admission.Hello {
	return admission.Hello{Instance: g.instance, Capability: g.Capability, Addrs: g.Host.Addrs()}
}

// refuse notes a verdict for whoever waits for it.
func (g *Greeter) refuse(p peer.ID, err error) {
	g.Peers.Refuse(p, err)
	g.Store.Refused(p, err)
}

func (g *Greeter) disconnect(p peer.ID) {
	if err := g.Host.Network().ClosePeer(p); err != nil {
		g.Log.Debug("swarm: close connections", "peer", p, "err", err)
	}
}
