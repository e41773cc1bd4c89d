package host

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"pnode/swarm/admission"
	"pnode/swarm/places"
	"pnode/swarm/tasks"
)

// What peers may cost that are not admitted. A connection is some 100 KB, and its windows (windows.go) as much again:
// 128 of them stay below 32 MB, as much of which the garbage collector may leave lying.
const (
	// strangersConns is how many connections all strangers have, strangersPerIP those of one address. keptConns are more,
	// for peers that are known and for the addresses where they were met.
	strangersConns = 128
	strangersPerIP = 64
	keptConns      = 64
	// connsPerStranger is how many one peer has: one for each way that it finds here.
	connsPerStranger = 4
	// streamsPerStranger is how many streams a peer may open before it is admitted: its greetings, identify, and what
	// members open that admit this node sooner than it admits them. One more ends its connections.
	streamsPerStranger = 32
	// placeTime is how long a connection counts as its address's at least, open or not. A handshake costs some 2 ms of
	// processor time: one address has at most 3 of them a second.
	placeTime = 20 * time.Second
	// upgradeTime bounds the handshake of a TCP connection.
	upgradeTime = 5 * time.Second
	// knownFor is how long the addresses of known peers are not asked for again.
	knownFor = time.Second
)

var (
	errNoPlace  = errors.New("swarm: all places of strangers are taken")
	errStranger = errors.New("swarm: peer is not admitted yet")
)

// Known are the peers for whom places are kept: members that this node has met or heard of, and who it was told to
// connect to.
type Known interface {
	// Knows reports whether a peer is one of them. It is called under a lock.
	Knows(peer.ID) bool
	// KnownAddrs returns where they were.
	KnownAddrs() []ma.Multiaddr
}

// strangers counts what peers take up here before they are admitted. Its methods may be called from any goroutine.
type strangers struct {
	peers *admission.Peers
	known Known
	// room has the places of everybody, kept those of known peers besides.
	room, kept *places.Places
	// mu guards the fields below.
	mu sync.Mutex
	// conns are the connections with each peer that has proved its ID.
	conns map[peer.ID]map[*conn]bool
	// opened counts the streams that a stranger has opened.
	opened map[peer.ID]int
	// members counts the connections of members at each address and port, memberIPs at each address.
	members   map[netip.AddrPort]int
	memberIPs map[netip.Addr]int
	// knownIPs is where known peers were at knownAt.
	knownIPs map[netip.Addr]bool
	knownAt  time.Time
	// cut ends the connections of a peer; nil until the host has started.
	cut func(peer.ID)
}

// conn is one connection as libp2p's resource manager counts it, with a stranger's place.
type conn struct {
	network.ConnManagementScope
	strangers *strangers
	at        netip.AddrPort // zero over a relay
	inbound   bool
	opened    time.Time // if inbound
	// The strangers' mu guards the fields below. place is nil for who needs none; enrolled says that members counts it.
	peer     peer.ID
	place    *places.Places
	enrolled bool
}

func newStrangers(peers *admission.Peers, known Known) *strangers {
	return &strangers{
		peers: peers, known: known,
		room: places.New(strangersConns, strangersPerIP), kept: places.New(keptConns, keptConns),
		conns: map[peer.ID]map[*conn]bool{}, opened: map[peer.ID]int{},
		members: map[netip.AddrPort]int{}, memberIPs: map[netip.Addr]int{},
	}
}

// watch disconnects strangers from a host that open too many streams, and forgets what they said about themselves when
// they are gone: libp2p would keep up to 500 addresses of each for 15 minutes.
func (s *strangers) watch(group *tasks.Group, h host.Host) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut = func(p peer.ID) {
		group.Run(func(context.Context) { _ = h.Network().ClosePeer(p) })
	}
	h.Network().Notify(&network.NotifyBundle{DisconnectedF: func(n network.Network, c network.Conn) {
		p := c.RemotePeer()
		if s.known != nil && !s.known.Knows(p) && n.Connectedness(p) == network.NotConnected {
			h.Peerstore().ClearAddrs(p)
			h.Peerstore().RemovePeer(p)
		}
	}})
}

// open takes a place for a new connection, if it comes in. It gives errNoPlace for one too many.
func (s *strangers) open(dir network.Direction, endpoint ma.Multiaddr) (*conn, error) {
	c := &conn{strangers: s, at: remote(endpoint), inbound: dir == network.DirInbound}
	if !c.inbound {
		return c, nil
	}
	ip := c.at.Addr()
	switch {
	case s.room.Take(ip):
		c.place = s.room
	case s.familiar(ip) && s.kept.Take(ip):
		c.place = s.kept
	default:
		return nil, errNoPlace
	}
	c.opened = time.Now()
	return c, nil
}

// name notes which peer is at the other end of a connection. A member needs no place; a known peer has one that is kept.
func (s *strangers) name(c *conn, p peer.ID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	member := s.peers.Member(p)
	if c.inbound && !member && len(s.conns[p]) >= connsPerStranger {
		return errNoPlace
	}
	if s.conns[p] == nil {
		s.conns[p] = map[*conn]bool{}
	}
	c.peer = p
	s.conns[p][c] = true
	switch {
	case member:
		s.enroll(c)
	case c.place == s.room && s.known != nil && s.known.Knows(p) && s.kept.Take(c.at.Addr()):
		s.room.Give(c.at.Addr())
		c.place = s.kept
	}
	return nil
}

// admitted gives back the places of a new member's connections.
func (s *strangers) admitted(p peer.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.opened, p)
	for c := range s.conns[p] {
		s.enroll(c)
		s.room.Forgive(c.at.Addr()) // of its ways to here all but one were given up
	}
}

// enroll counts a connection as a member's. The caller holds mu.
func (s *strangers) enroll(c *conn) {
	if c.place != nil {
		c.place.Give(c.at.Addr())
		c.place = nil
	}
	if !c.enrolled && c.at.IsValid() {
		c.enrolled = true
		s.members[c.at]++
		s.memberIPs[c.at.Addr()]++
	}
}

// close forgets a connection; again, it does nothing.
func (s *strangers) close(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.place != nil {
		c.place.GiveAfter(c.at.Addr(), placeTime-time.Since(c.opened))
		c.place = nil
	}
	if c.enrolled {
		c.enrolled = false
		less(s.members, c.at)
		less(s.memberIPs, c.at.Addr())
	}
	if all := s.conns[c.peer]; all[c] {
		delete(all, c)
		if len(all) == 0 {
			delete(s.conns, c.peer)
			delete(s.opened, c.peer)
		}
	}
}

// less counts one down, and forgets who has none.
func less[K comparable](counts map[K]int, k K) {
	if counts[k]--; counts[k] <= 0 {
		delete(counts, k)
	}
}

// stream counts a stream that a peer opens. A stranger that goes on beyond its number is disconnected.
func (s *strangers) stream(p peer.ID) error {
	if s.peers.Member(p) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns[p] == nil {
		return nil // its last connection is just closing
	}
	s.opened[p]++
	if s.opened[p] <= streamsPerStranger {
		return nil
	}
	if s.opened[p] == streamsPerStranger+1 && s.cut != nil {
		s.cut(p)
	}
	return errStranger
}

// mayGrow reports whether a connection's windows may grow: a member's may.
func (s *strangers) mayGrow(c *conn) bool {
	s.mu.Lock()
	p := c.peer
	s.mu.Unlock()
	return s.peers.Member(p)
}

// turnsAway reports whether a connection from an address would find no place.
func (s *strangers) turnsAway(ip netip.Addr) bool {
	return s.room.Full(ip) && !(s.familiar(ip) && !s.kept.Full(ip))
}

// doubts reports whether an address should prove itself: when many places are taken, and there is one for it, of those
// that are kept too.
func (s *strangers) doubts(at netip.AddrPort) bool {
	return s.room.Used() > strangersConns/4 && !s.turnsAway(at.Addr())
}

// windowsFor returns the windows of a connection from an address and port, at first.
func (s *strangers) windowsFor(at netip.AddrPort) windows {
	s.mu.Lock()
	member := s.members[at] > 0
	s.mu.Unlock()
	switch {
	case member:
		return membersWindows
	case s.familiar(at.Addr()):
		return knownWindows
	}
	return strangersWindows
}

// familiar reports whether a member is connected from an address, or a known peer was there.
func (s *strangers) familiar(ip netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.memberIPs[ip] > 0 {
		return true
	}
	if now := time.Now(); s.known != nil && now.Sub(s.knownAt) >= knownFor {
		s.knownIPs, s.knownAt = map[netip.Addr]bool{}, now
		for _, a := range s.known.KnownAddrs() {
			if at := remote(a); at.IsValid() {
				s.knownIPs[at.Addr()] = true
			}
		}
	}
	return s.knownIPs[ip]
}

// remote returns the address and port of a direct connection, zero for one over a relay.
func remote(a ma.Multiaddr) netip.AddrPort {
	if a == nil {
		return netip.AddrPort{}
	}
	if _, err := a.ValueForProtocol(ma.P_CIRCUIT); err == nil {
		return netip.AddrPort{}
	}
	host, _ := ma.SplitFunc(a, func(c ma.Component) bool {
		return c.Protocol().Code != ma.P_IP4 && c.Protocol().Code != ma.P_IP6 && c.Protocol().Code != ma.P_IP6ZONE &&
			c.Protocol().Code != ma.P_UDP && c.Protocol().Code != ma.P_TCP
	})
	addr, err := manet.ToNetAddr(host)
	if err != nil {
		return netip.AddrPort{}
	}
	return addrPort(addr)
}

// addrPort returns an IP address and port, zero for what is none.
func addrPort(a net.Addr) netip.AddrPort {
	var at netip.AddrPort
	switch a := a.(type) {
	case *net.UDPAddr:
		at = a.AddrPort()
	case *net.TCPAddr:
		at = a.AddrPort()
	}
	if !at.IsValid() {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}
