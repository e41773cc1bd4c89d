package host

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"pnode/swarm/admission"
	"pnode/swarm/tasks"
)

// acquaintances are the known peers of a test.
type acquaintances map[peer.ID]ma.Multiaddr

func (a acquaintances) Knows(p peer.ID) bool { return a[p] != nil }

func (a acquaintances) KnownAddrs() (out []ma.Multiaddr) {
	for _, at := range a {
		out = append(out, at)
	}
	return out
}

// testHost starts a host that knows some peers.
func testHost(t *testing.T, known Known) *Host {
	t.Helper()
	h, err := New(Config{
		Identity: testIdentity(t), Listen: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")},
		Peers: admission.NewPeers(), Known: known, Tasks: tasks.New(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

// from opens a connection as a transport does, before anything is known of its peer.
func from(h *Host, format string, args ...any) (network.ConnManagementScope, error) {
	return h.Network().ResourceManager().OpenConnection(network.DirInbound, true, ma.StringCast(fmt.Sprintf(format, args...)))
}

// TCP connections that never finish the handshake, from one address and from many, leave room for others.
func TestUnfinishedHandshakes(t *testing.T) {
	h := testHost(t, nil)
	open := func(format string, args ...any) (n int) {
		for range 1000 {
			if _, err := from(h, format, args...); err != nil {
				return n
			}
			n++
		}
		return n
	}
	if n := open("/ip4/192.0.2.1/tcp/4001"); n == 0 || n > 64 {
		t.Errorf("one address has %d connections, want 1 to 64", n)
	}
	for i := range 30 {
		open("/ip4/198.51.100.%d/tcp/4001", i)
	}
	if used := h.strangers.room.Used(); used >= strangersConns {
		t.Errorf("31 addresses hold all of %d places", used)
	}
	if _, err := from(h, "/ip4/203.0.113.7/udp/4001/quic-v1"); err != nil {
		t.Errorf("the address after them: %v", err)
	}
}

// When strangers hold all places, known peers and their addresses have more, and members need none.
func TestPlacesOfKnownPeers(t *testing.T) {
	friend, member := testIdentity(t).ID(), testIdentity(t).ID()
	h := testHost(t, acquaintances{friend: ma.StringCast("/ip4/203.0.113.1/udp/4001/quic-v1")})
	moved, err := from(h, "/ip4/203.0.113.99/udp/4001/quic-v1") // from elsewhere, but who it is
	if err != nil {
		t.Fatal(err)
	}
	if err := moved.SetPeer(friend); err != nil {
		t.Fatal(err)
	}
	if got := h.strangers.kept.Used(); got != 1 {
		t.Errorf("a known peer holds %d kept places, want 1", got)
	}
	entered, err := from(h, "/ip4/203.0.113.50/udp/4001/quic-v1")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 * strangersConns {
		from(h, "/ip4/10.0.%d.%d/udp/4001/quic-v1", i/250, i%250)
	}
	if _, err := from(h, "/ip4/203.0.113.2/udp/4001/quic-v1"); !errors.Is(err, errNoPlace) {
		t.Errorf("one more stranger: %v, want no place", err)
	}
	if _, err := from(h, "/ip4/203.0.113.1/tcp/999"); err != nil {
		t.Errorf("from where a known peer was: %v", err)
	}
	if err := entered.SetPeer(member); err != nil {
		t.Fatal(err)
	}
	if entered.ReserveMemory(1, network.ReservationPriorityAlways) == nil {
		t.Error("a stranger's window grows")
	}
	h.strangers.peers.Arrive(member)
	if _, _, err := h.strangers.peers.Admit(member, admission.Capability{}, admission.Instance{}); err != nil {
		t.Fatal(err)
	}
	h.Admitted(member)
	if err := entered.ReserveMemory(1, network.ReservationPriorityAlways); err != nil {
		t.Errorf("a member's window does not grow: %v", err)
	}
	for range connsPerPeer / 2 { // from the member's address, as its data connections
		c, err := from(h, "/ip4/203.0.113.50/udp/4001/quic-v1")
		if err == nil {
			err = c.SetPeer(member)
		}
		if err != nil {
			t.Fatalf("a member's connection: %v", err)
		}
	}
	at := netip.MustParseAddrPort("203.0.113.50:4001")
	if got := h.strangers.windowsFor(at); got != membersWindows {
		t.Errorf("a connection from where a member is has windows of %v", got)
	}
	entered.Done()
	if got := h.strangers.windowsFor(netip.MustParseAddrPort("192.0.2.9:4001")); got != strangersWindows {
		t.Errorf("a connection from anywhere has windows of %v", got)
	}
}

// One unknown peer has few connections.
func TestConnectionsOfOneStranger(t *testing.T) {
	h, p := testHost(t, nil), testIdentity(t).ID()
	n := 0
	for range 16 {
		c, err := from(h, "/ip4/192.0.2.1/udp/4001/quic-v1")
		if err != nil {
			t.Fatal(err)
		}
		if c.SetPeer(p) == nil {
			n++
			continue
		}
		c.Done()
	}
	if n != connsPerStranger {
		t.Errorf("a stranger has %d connections, want %d", n, connsPerStranger)
	}
}

// Who connects and leaves at once gets no more places than who stays.
func TestPlacesComeBackLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStrangers(admission.NewPeers(), nil)
		at := ma.StringCast("/ip4/192.0.2.1/udp/4001/quic-v1")
		taken := 0
		for !s.room.Full(netip.MustParseAddr("192.0.2.1")) {
			c, err := s.open(network.DirInbound, at)
			if err != nil {
				t.Fatal(err)
			}
			s.close(c)
			s.close(c)
			taken++
		}
		if _, err := s.open(network.DirInbound, at); !errors.Is(err, errNoPlace) || taken != strangersPerIP {
			t.Errorf("after %d: %v, want %d places", taken, err, strangersPerIP)
		}
		if _, err := s.open(network.DirInbound, ma.StringCast("/ip4/192.0.2.2/tcp/1")); err != nil || s.room.Used() != 1 {
			t.Errorf("%d places are taken, another address's among them: %v", s.room.Used(), err)
		}
		s.room.Forgive(netip.MustParseAddr("192.0.2.1"))
		c, err := s.open(network.DirInbound, at)
		if err != nil {
			t.Fatalf("an address of a new member: %v", err)
		}
		s.close(c)
		for !s.room.Full(netip.MustParseAddr("192.0.2.1")) {
			if c, err = s.open(network.DirInbound, at); err != nil {
				t.Fatal(err)
			}
			s.close(c)
		}
		time.Sleep(placeTime)
		synctest.Wait()
		if _, err := s.open(network.DirInbound, at); err != nil {
			t.Errorf("after %s: %v", placeTime, err)
		}
	})
}

// writer counts what is written.
type writer struct{ bytes *atomic.Int64 }

func (w writer) Write(b []byte) (int, error) {
	w.bytes.Add(int64(len(b)))
	return len(b), nil
}

// Of a TCP connection's unread streams no more is read than small windows hold, until the peer is admitted.
func TestUnreadStreamsOverTCP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		peers, p := admission.NewPeers(), testIdentity(t).ID()
		peers.Arrive(p)
		there, here := net.Pipe()
		c := &meteredConn{Conn: here, peers: peers, peer: p, left: strangersTCPBytes, closed: make(chan struct{})}
		var read atomic.Int64
		go there.Write(make([]byte, 2*strangersTCPBytes))
		go io.Copy(writer{&read}, c)
		synctest.Wait()
		if got := read.Load(); got != strangersTCPBytes {
			t.Errorf("%d bytes were read of a stranger, want %d", got, strangersTCPBytes)
		}
		if _, _, err := peers.Admit(p, admission.Capability{}, admission.Instance{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := read.Load(); got != 2*strangersTCPBytes {
			t.Errorf("%d bytes were read of a member, want %d", got, 2*strangersTCPBytes)
		}
		c.Close()
		there.Close()
		waiting := &meteredConn{Conn: here, peers: admission.NewPeers(), peer: p, closed: make(chan struct{})}
		go waiting.Close()
		if _, err := waiting.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) && !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("a read that waits, when the connection closes: %v", err)
		}
	})
}

// When strangers hold all places, who sends from a known peer's address has to prove that it is there, before it takes a
// place that is kept; whom no place waits for is not asked.
func TestForgedAddressesOfKnownPeers(t *testing.T) {
	known := acquaintances{"known": ma.StringCast("/ip4/192.0.2.1/udp/4001/quic-v1")}
	h := testHost(t, known)
	member, stranger := netip.MustParseAddrPort("192.0.2.1:4001"), netip.MustParseAddrPort("203.0.113.7:4001")
	if h.strangers.doubts(member) {
		t.Error("an address has to prove itself while nothing is taken")
	}
	for i := range 2 * strangersConns {
		if _, err := from(h, "/ip4/198.51.%d.%d/udp/4001/quic-v1", 100+i/200, i%200); err != nil {
			break
		}
	}
	if !h.strangers.room.Full(member.Addr()) || h.strangers.kept.Used() > 0 {
		t.Fatalf("%d places of strangers and %d kept ones are taken", h.strangers.room.Used(), h.strangers.kept.Used())
	}
	if !h.strangers.doubts(member) {
		t.Error("a known peer's address takes a place that is kept, unproved")
	}
	if h.strangers.doubts(stranger) {
		t.Error("an address is asked that is turned away in any case")
	}
}
