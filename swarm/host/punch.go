package host

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/event"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/protocol/holepunch"
	"github.com/libp2p/go-libp2p/p2p/protocol/identify"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"pnode/swarm/admission"
)

const (
	punchTick = 250 * time.Millisecond
	// The pauses between tries to punch a hole to a member that is reached through a relay. libp2p tries itself when the
	// connection is made, when neither end may know its address yet.
	firstPunch   = 500 * time.Millisecond
	longestPunch = 10 * time.Minute
	// maxSeen bounds the connections whose observed address is kept, maxPunchAddrs those told to a peer.
	maxSeen       = 256
	maxPunchAddrs = 8
)

// puncher makes direct connections to members that are reached through a relay: both ends dial each other at once, at
// the addresses that other members see them at (DCUtR).
type puncher struct {
	host  host.Host
	ids   identify.IDService
	peers *admission.Peers
	log   *slog.Logger
	// mu guards the fields below. seen is where peers see this node, by peer and transport, since when connected peers are
	// connected through a relay.
	mu    sync.Mutex
	seen  map[sighting]ma.Multiaddr
	since map[peer.ID]time.Time
}

// sighting names who sees this node, and over what.
type sighting struct {
	by  peer.ID
	tcp bool
}

// run notes where members see this node, and punches holes, until ctx ends.
func (p *puncher) run(ctx context.Context) {
	identified, err := p.host.EventBus().Subscribe(new(event.EvtPeerIdentificationCompleted))
	if err != nil {
		p.log.Warn("swarm: no holes are punched", "err", err)
		return
	}
	defer identified.Close()
	tick := time.NewTicker(punchTick)
	defer tick.Stop()
	tries := map[peer.ID]*try{}
	var service *holepunch.Service
	var punching sync.WaitGroup
	defer func() {
		if service != nil {
			service.Close() // ends the tries
		}
		punching.Wait()
	}()
	for {
		select {
		case e := <-identified.Out():
			if done, ok := e.(event.EvtPeerIdentificationCompleted); ok {
				p.note(done)
			}
			continue
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		switch {
		case service == nil && len(p.addrs()) > 0: // without an address it would wait for seconds
			if service, err = holepunch.NewService(p.host, p.ids, p.addrs); err != nil {
				p.log.Warn("swarm: no holes are punched", "err", err)
				return
			}
		case service != nil && slices.Contains(p.host.Mux().Protocols(), holepunch.Protocol):
			p.due(time.Now(), tries, service, &punching)
		}
	}
}

// note keeps the address at which a peer sees this node, if it is connected without a relay.
func (p *puncher) note(e event.EvtPeerIdentificationCompleted) {
	if e.Conn == nil || e.ObservedAddr == nil || circuit(e.Conn.RemoteMultiaddr()) || circuit(e.ObservedAddr) || manet.IsIPLoopback(e.ObservedAddr) {
		return
	}
	_, err := e.ObservedAddr.ValueForProtocol(ma.P_TCP)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.seen) >= maxSeen {
		for s := range p.seen {
			if !p.peers.Member(s.by) {
				delete(p.seen, s)
			}
		}
	}
	if len(p.seen) < maxSeen {
		p.seen[sighting{e.Peer, err == nil}] = e.ObservedAddr
	}
}

// addrs returns the addresses that members see this node at, those that most of them see first, and its public ones.
// Where no member is connected over TCP, it is guessed that the NAT keeps the number of the port that is listened on, as
// most do while it is free (RFC 4787, section 4.2.1).
func (p *puncher) addrs() []ma.Multiaddr {
	count := map[string]int{}
	var overUDP []ma.Multiaddr
	overTCP := false
	p.mu.Lock()
	for s, a := range p.seen {
		if p.peers.Member(s.by) {
			count[string(a.Bytes())]++
			if overTCP = overTCP || s.tcp; !s.tcp {
				overUDP = append(overUDP, a)
			}
		}
	}
	p.mu.Unlock()
	if !overTCP {
		for _, a := range overUDP {
			for _, guess := range sameOverTCP(a, p.host.Network().ListenAddresses()) {
				count[string(guess.Bytes())]++
			}
		}
	}
	var out []ma.Multiaddr
	for b := range count {
		if a, err := ma.NewMultiaddrBytes([]byte(b)); err == nil {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(a, b ma.Multiaddr) int { return count[string(b.Bytes())] - count[string(a.Bytes())] })
	for _, a := range p.host.Addrs() {
		if manet.IsPublicAddr(a) && !circuit(a) && !slices.ContainsFunc(out, a.Equal) {
			out = append(out, a)
		}
	}
	return out[:min(len(out), maxPunchAddrs)]
}

// sameOverTCP returns the IP address of an address with the TCP ports that are listened on for its family.
func sameOverTCP(a ma.Multiaddr, listens []ma.Multiaddr) (out []ma.Multiaddr) {
	ip, _ := ma.SplitFirst(a)
	for _, l := range listens {
		at, port := ma.SplitFirst(l)
		if ip == nil || at == nil || ip.Protocol().Code != at.Protocol().Code || len(port) != 1 || port[0].Protocol().Code != ma.P_TCP {
			continue
		}
		if guess := ip.Encapsulate(port); !slices.ContainsFunc(out, guess.Equal) {
			out = append(out, guess)
		}
	}
	return out
}

// try says when a hole to a peer is tried next.
type try struct {
	next  time.Time
	pause time.Duration
	// busy holds one element while a try is under way.
	busy chan struct{}
}

// due starts the tries whose time has come: to members that dialed this node through a relay, and have no other
// connection. The end that was dialed begins.
func (p *puncher) due(now time.Time, tries map[peer.ID]*try, service *holepunch.Service, punching *sync.WaitGroup) {
	for id := range tries {
		if !p.peers.Member(id) || !p.relayed(id) {
			delete(tries, id)
		}
	}
	for _, c := range p.peers.Members() {
		id := c.ID()
		if !p.relayed(id) {
			continue
		}
		t := tries[id]
		if t == nil {
			t = &try{now.Add(firstPunch), firstPunch, make(chan struct{}, 1)}
			tries[id] = t
		}
		if now.Before(t.next) {
			continue
		}
		select {
		case t.busy <- struct{}{}:
		default:
			continue
		}
		t.pause = min(3*t.pause, longestPunch)
		t.next = now.Add(t.pause)
		punching.Go(func() {
			defer func() { <-t.busy }()
			if err := service.DirectConnect(id); err != nil {
				p.log.Debug("swarm: no direct connection", "peer", id, "err", err)
				return
			}
			p.log.Info("swarm: direct connection in place of a relayed one", "peer", id)
		})
	}
}

// watch notes since when peers are connected through relays.
func (p *puncher) watch() {
	p.host.Network().Notify(&network.NotifyBundle{
		ConnectedF: func(_ network.Network, c network.Conn) {
			p.mu.Lock()
			defer p.mu.Unlock()
			if _, known := p.since[c.RemotePeer()]; !known && circuit(c.RemoteMultiaddr()) {
				p.since[c.RemotePeer()] = c.Stat().Opened
			}
		},
		DisconnectedF: func(n network.Network, c network.Conn) {
			p.mu.Lock()
			defer p.mu.Unlock()
			if len(n.ConnsToPeer(c.RemotePeer())) == 0 {
				delete(p.since, c.RemotePeer())
			}
		},
	})
}

// overTCP reports whether a peer that was connected through a relay got a direct connection over TCP after that.
func (p *puncher) overTCP(id peer.ID) bool {
	p.mu.Lock()
	since, relayed := p.since[id]
	p.mu.Unlock()
	return relayed && slices.ContainsFunc(p.host.Network().ConnsToPeer(id), func(c network.Conn) bool {
		_, err := c.RemoteMultiaddr().ValueForProtocol(ma.P_TCP)
		return err == nil && !circuit(c.RemoteMultiaddr()) && c.Stat().Opened.After(since)
	})
}

// relayed reports whether a peer's only connections lead through relays, and it dialed one of them.
func (p *puncher) relayed(id peer.ID) (inbound bool) {
	for _, c := range p.host.Network().ConnsToPeer(id) {
		if !circuit(c.RemoteMultiaddr()) {
			return false
		}
		inbound = inbound || c.Stat().Direction == network.DirInbound
	}
	return inbound
}
