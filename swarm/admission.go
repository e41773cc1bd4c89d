package swarm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

const (
	helloProtocol = protocol.ID("/pnode/hello/1")
	// admissionTime is how long a connected peer may stay without being a member.
	admissionTime = 10 * time.Second
	// greetings bounds how many are answered at once.
	greetings = 64
	memberTag = "pnode member"
	// The pauses before a greeting or a dial whose connection vanished is tried again.
	firstPause   = 20 * time.Millisecond
	longestPause = time.Second
)

// listenAdmission answers greetings and greets whoever this node dials.
func (s *Swarm) listenAdmission() {
	room := make(chan struct{}, greetings)
	s.host.SetStreamHandler(helloProtocol, func(st network.Stream) {
		if !s.tasks.enter() {
			st.Reset()
			return
		}
		defer s.tasks.leave()
		select {
		case room <- struct{}{}:
			defer func() { <-room }()
			s.answer(st)
		default:
			st.Reset()
		}
	})
	s.host.Network().Notify(&network.NotifyBundle{
		ConnectedF:    func(_ network.Network, c network.Conn) { s.connected(c) },
		DisconnectedF: func(_ network.Network, c network.Conn) { s.disconnected(c.RemotePeer()) },
	})
	for _, c := range s.host.Network().Conns() { // those made before Notify
		s.connected(c)
	}
}

// connected notes a connection. The side that dialed greets, on every connection: the
// other may have forgotten what an older one established.
func (s *Swarm) connected(c network.Conn) {
	p := c.RemotePeer()
	v, first := s.door.arrive(p)
	if first {
		s.tasks.run(func(ctx context.Context) { s.guard(ctx, p, v) })
	}
	if c.Stat().Direction == network.DirOutbound {
		s.tasks.run(func(ctx context.Context) { s.greet(ctx, p) })
	}
}

func (s *Swarm) disconnected(p peer.ID) {
	member := s.door.leave(p, func() bool {
		return s.host.Network().Connectedness(p) != network.NotConnected
	})
	if member {
		s.host.ConnManager().Unprotect(p, memberTag)
		s.log.Info("swarm: member disconnected", "peer", p)
		s.hurry()
	}
}

// guard closes the connections of a visitor that is not a member in time. A refused one
// has until then to read why, and to hang up by itself.
func (s *Swarm) guard(ctx context.Context, p peer.ID, v *visitor) {
	deadline := time.NewTimer(admissionTime)
	defer deadline.Stop()
	decided := v.decided
	for {
		select {
		case <-decided:
			if !s.door.isStranger(p, v) {
				return // it is in, or gone: the next visit has its own time
			}
			decided = nil
		case <-deadline.C:
			if s.door.isStranger(p, v) {
				s.disconnect(p)
			}
			return
		case <-ctx.Done():
			return
		}
	}
}

// greet introduces this node to a peer it dialed, and judges the answer. A greeting whose
// connection is closed tells nothing about the peer: of two that dial each other one
// connection may go, and the greeting is tried again on what is left.
func (s *Swarm) greet(ctx context.Context, p peer.ID) {
	ctx, cancel := context.WithTimeout(ctx, admissionTime)
	defer cancel()
	decided, err := s.meet(ctx, p)
	for pause := firstPause; !decided; pause = min(2*pause, longestPause) {
		s.log.Debug("swarm: greeting lost", "peer", p, "err", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return // the guard sees to it
		}
		if s.host.Network().Connectedness(p) == network.NotConnected {
			return
		}
		decided, err = s.meet(ctx, p)
	}
	if err == nil || s.tasks.ctx.Err() != nil || s.door.isMember(p) {
		return // done, or too late, or the peer's own greeting was faster
	}
	s.log.Warn("swarm: not admitted with peer", "peer", p, "err", err)
	s.door.refuse(p, err)
	s.book.refused(p, err)
	s.disconnect(p)
}

// meet exchanges one greeting. decided tells whether it came to a verdict, this node's or
// the peer's: nil is welcome.
func (s *Swarm) meet(ctx context.Context, p peer.ID) (decided bool, err error) {
	st, r, err := s.exchangeHello(ctx, p)
	if err != nil {
		var refusal *remoteRefusal
		return errors.As(err, &refusal) || errors.Is(err, ErrMalformed), err
	}
	defer st.Close()
	err = s.judge(p, r.Hello, st.Conn())
	return !errors.Is(err, ErrNotMember), err
}

// hello is what this node says of itself.
func (s *Swarm) hello() hello {
	return hello{Instance: s.instance, Capability: s.cfg.Capability, Addrs: s.host.Addrs()}
}

// exchangeHello sends a hello and reads the reply; a refusal is an error.
func (s *Swarm) exchangeHello(ctx context.Context, p peer.ID) (network.Stream, reply, error) {
	ctx = network.WithAllowLimitedConn(network.WithNoDial(ctx, "greeting"), "greeting")
	st, err := s.host.NewStream(ctx, p, helloProtocol)
	if err != nil {
		return nil, reply{}, fmt.Errorf("open %s: %w", helloProtocol, err)
	}
	// Cancelling must end a blocked read too.
	stop := context.AfterFunc(ctx, func() { st.Reset() })
	defer stop()
	var b []byte
	if err = WriteMessage(st, s.hello().append(nil)); err == nil {
		b, err = ReadMessage(st, MaxReplyBytes)
	}
	var r reply
	if err == nil {
		r, err = decodeReply(b)
	}
	if err == nil && r.Code != 0 {
		err = refusalFrom(r.Code, r.Detail)
	}
	if err != nil {
		st.Reset()
		return nil, reply{}, err
	}
	return st, r, nil
}

// answer serves one greeting.
func (s *Swarm) answer(st network.Stream) {
	defer st.Close()
	p := st.Conn().RemotePeer()
	if err := st.SetDeadline(time.Now().Add(admissionTime)); err != nil {
		st.Reset()
		return
	}
	b, err := ReadMessage(st, MaxHelloBytes)
	if err != nil {
		st.Reset()
		return
	}
	theirs, err := decodeHello(b)
	if err == nil {
		err = s.judge(p, theirs, st.Conn())
	}
	out := reply{Hello: s.hello()}
	if errors.Is(err, ErrNotMember) { // its connections are gone, this one too
		st.Reset()
		return
	}
	if err != nil {
		out = reply{Code: refusalCode(err), Detail: err.Error()}
		s.log.Info("swarm: peer refused", "peer", p, "addr", st.Conn().RemoteMultiaddr(), "err", err)
		s.door.refuse(p, err)
		s.book.refused(p, err)
	}
	if err := WriteMessage(st, out.append(nil)); err != nil {
		st.Reset()
	}
}

// judge verifies what a peer showed and lets it in. The error is ErrNotMember when the
// peer is gone meanwhile, which is no verdict.
func (s *Swarm) judge(p peer.ID, h hello, conn network.Conn) error {
	if s.door.isBlocked(p) {
		return ErrBlocked
	}
	if len(h.Capability) == 0 {
		return ErrNeedsInvite
	}
	now := time.Now()
	c, err := checkCapability(h.Capability, p, s.cfg, now)
	if err != nil {
		return err
	}
	if err := s.cfg.Admit(c); err != nil {
		return err
	}
	first, replaced, err := s.door.admit(p, c, h.Instance)
	if err != nil {
		return err
	}
	if replaced {
		s.closeOlder(p, conn)
	}
	if s.book.learn(c, believable(h.Addrs, conn.RemoteMultiaddr())) {
		s.book.tried(p, nil, now)
	}
	if first {
		s.log.Info("swarm: member connected", "peer", p, "addr", conn.RemoteMultiaddr())
		s.host.ConnManager().Protect(p, memberTag)
		s.gossip.admitted(p)
		s.tasks.run(func(ctx context.Context) { s.askPeers(ctx, p) })
	}
	return nil
}

// checkCapability decodes a capability and verifies it for the peer that showed it.
func checkCapability(b []byte, p peer.ID, cfg Config, now time.Time) (Capability, error) {
	c, err := DecodeCapability(b)
	if err != nil {
		return Capability{}, err
	}
	if err := c.Verify(cfg.OwnerKey, cfg.Run, now); err != nil {
		return Capability{}, err
	}
	if c.peer != p {
		return Capability{}, fmt.Errorf("%w: the capability is for peer %s, this is %s", ErrSignature, c.Peer, p)
	}
	return c, nil
}

// closeOlder ends the connections to p that its restarted node has no knowledge of: those
// made before the one it greets on.
func (s *Swarm) closeOlder(p peer.ID, keep network.Conn) {
	for _, c := range s.host.Network().ConnsToPeer(p) {
		if c.Stat().Opened.Before(keep.Stat().Opened) {
			c.Close()
		}
	}
}

// believable drops loopback addresses told by a peer on another machine: dialed from here
// they would lead to this one.
func believable(addrs []ma.Multiaddr, from ma.Multiaddr) []ma.Multiaddr {
	local := manet.IsIPLoopback(from)
	var out []ma.Multiaddr
	for _, a := range addrs {
		if local || !manet.IsIPLoopback(a) {
			out = append(out, a)
		}
	}
	return out
}
