package host

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	basichost "github.com/libp2p/go-libp2p/p2p/host/basic"
	"github.com/libp2p/go-netroute"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

// A router is asked for ports by UPnP, which libp2p does, and by PCP (RFC 6887) or NAT-PMP (RFC 6886), which is done here:
// libp2p v0.51.0 asks its routing library for the route to 0.0.0.0 to find the router, and gets none.
const (
	pcpPort = 5351
	// pcpLifetime is how long a mapping is asked for; it is renewed after half of what was given.
	pcpLifetime = time.Hour
	// pcpRetry is when a router is asked again that did not answer; there may be another one then.
	pcpRetry = 2 * time.Minute
	// A request is sent again after pcpWait, then twice that.
	pcpWait  = 250 * time.Millisecond
	pcpTries = 4
)

// socketPort is a port of this machine, over UDP or TCP.
type socketPort struct {
	tcp  bool
	port uint16
}

// portMapper has the router map the ports that a host listens on. It is libp2p's NATManager.
type portMapper struct {
	basichost.NATManager // UPnP
	net                  network.Network
	cancel               context.CancelFunc
	done                 chan struct{}
	listens              chan struct{} // holds one element when the ports may have changed
	// mu guards mapped.
	mu     sync.Mutex
	mapped map[socketPort]netip.AddrPort
}

func newPortMapper(n network.Network) basichost.NATManager {
	ctx, cancel := context.WithCancel(context.Background())
	m := &portMapper{
		NATManager: basichost.NewNATManager(n), net: n, cancel: cancel, done: make(chan struct{}),
		listens: make(chan struct{}, 1), mapped: map[socketPort]netip.AddrPort{},
	}
	changed := func(network.Network, ma.Multiaddr) {
		select {
		case m.listens <- struct{}{}:
		default:
		}
	}
	n.Notify(&network.NotifyBundle{ListenF: changed})
	go func() {
		defer close(m.done)
		m.run(ctx)
	}()
	return m
}

// Close gives the mappings back.
func (m *portMapper) Close() error {
	m.cancel()
	<-m.done
	return m.NATManager.Close()
}

// HasDiscoveredNAT reports whether a router maps ports.
func (m *portMapper) HasDiscoveredNAT() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.mapped) > 0 || m.NATManager.HasDiscoveredNAT()
}

// GetMapping returns the address outside that leads to an address listened on; nil for none.
func (m *portMapper) GetMapping(a ma.Multiaddr) ma.Multiaddr {
	if mapped := m.NATManager.GetMapping(a); mapped != nil {
		return mapped
	}
	p, rest, ok := portOf(a)
	if !ok {
		return nil
	}
	m.mu.Lock()
	at, ok := m.mapped[p]
	m.mu.Unlock()
	if !ok {
		return nil
	}
	var outside net.Addr = net.UDPAddrFromAddrPort(at)
	if p.tcp {
		outside = net.TCPAddrFromAddrPort(at)
	}
	out, err := manet.FromNetAddr(outside)
	if err != nil {
		return nil
	}
	return out.Encapsulate(rest)
}

// portOf returns the port of an IPv4 address that other machines can connect to, and what comes after it.
func portOf(a ma.Multiaddr) (p socketPort, rest ma.Multiaddr, ok bool) {
	if len(a) < 2 || a[0].Protocol().Code != ma.P_IP4 || manet.IsIPLoopback(a) {
		return p, nil, false
	}
	code, raw := a[1].Protocol().Code, a[1].RawValue()
	if code != ma.P_TCP && code != ma.P_UDP || len(raw) != 2 {
		return p, nil, false
	}
	return socketPort{code == ma.P_TCP, binary.BigEndian.Uint16(raw)}, a[2:], true
}

// run maps the ports, and renews the mappings, until ctx ends.
func (m *portMapper) run(ctx context.Context) {
	var nonce [12]byte
	rand.Read(nonce[:])
	wait := time.NewTimer(0)
	defer wait.Stop()
	for {
		select {
		case <-m.listens:
		case <-wait.C:
		case <-ctx.Done():
			m.release(nonce)
			return
		}
		wait.Reset(m.renew(ctx, nonce))
	}
}

// ports lists the ports that the host listens on.
func (m *portMapper) ports() map[socketPort]bool {
	out := map[socketPort]bool{}
	for _, a := range m.net.ListenAddresses() {
		if p, _, ok := portOf(a); ok {
			out[p] = true
		}
	}
	return out
}

// renew maps every port, and returns when to do so again.
func (m *portMapper) renew(ctx context.Context, nonce [12]byte) time.Duration {
	again := pcpLifetime
	mapped := map[socketPort]netip.AddrPort{}
	router, err := dialRouter(nonce)
	if err == nil {
		defer router.Close()
		for p := range m.ports() {
			at, lifetime, err := router.mapPort(ctx, p, m.outside(p), pcpLifetime)
			if err != nil {
				break // mostly there is nobody to ask
			}
			mapped[p] = at
			again = min(again, lifetime)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mapped = mapped
	if len(mapped) == 0 {
		return pcpRetry
	}
	return max(again/2, time.Minute)
}

// outside returns the port outside that a port had, or should have.
func (m *portMapper) outside(p socketPort) uint16 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if at, ok := m.mapped[p]; ok {
		return at.Port()
	}
	return p.port
}

// release asks the router to forget the mappings, and does not wait for its answer.
func (m *portMapper) release(nonce [12]byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.mapped) == 0 {
		return
	}
	router, err := dialRouter(nonce)
	if err != nil {
		return
	}
	defer router.Close()
	for p := range m.mapped {
		_, _ = router.Write(router.pcpRequest(p, 0, 0))
		_, _ = router.Write(natPMPRequest(p, 0, 0))
	}
}

// router is a UDP connection to where a router answers PCP and NAT-PMP.
type router struct {
	*net.UDPConn
	nonce [12]byte
	// old says that it has answered NAT-PMP alone.
	old bool
}

// dialRouter returns a connection to the router on the way to the internet.
func dialRouter(nonce [12]byte) (*router, error) {
	routes, err := netroute.New()
	if err != nil {
		return nil, err
	}
	_, gateway, _, err := routes.Route(net.IPv4(192, 0, 2, 1)) // of an example network
	if err != nil {
		return nil, err
	}
	if gateway.To4() == nil {
		return nil, errors.New("no router")
	}
	conn, err := net.DialUDP("udp4", nil, &net.UDPAddr{IP: gateway, Port: pcpPort})
	if err != nil {
		return nil, err
	}
	return &router{UDPConn: conn, nonce: nonce}, nil
}

// mapPort maps a port for a time, under a number that the router may change.
func (r *router) mapPort(ctx context.Context, p socketPort, outside uint16, lifetime time.Duration) (netip.AddrPort, time.Duration, error) {
	if !r.old {
		m, err := ask(ctx, r.UDPConn, r.pcpRequest(p, outside, lifetime), func(b []byte) (mapping, error) { return readPCP(b, p, r.nonce) })
		if !errors.Is(err, errNATPMP) {
			return m.at, m.lifetime, err
		}
		r.old = true
	}
	ip, err := ask(ctx, r.UDPConn, []byte{0, 0}, readNATPMPAddress)
	if err != nil {
		return netip.AddrPort{}, 0, err
	}
	m, err := ask(ctx, r.UDPConn, natPMPRequest(p, outside, lifetime), func(b []byte) (mapping, error) { return readNATPMP(b, p) })
	return netip.AddrPortFrom(ip, m.at.Port()), m.lifetime, err
}

// ask sends a request until an answer comes that read accepts or refuses. Answers to other requests give errOther.
func ask[T any](ctx context.Context, conn *net.UDPConn, request []byte, read func([]byte) (T, error)) (answer T, err error) {
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	b := make([]byte, 1100) // RFC 6887, section 7
	for try := range pcpTries {
		if _, err = conn.Write(request); err != nil {
			return answer, err
		}
		if err = conn.SetReadDeadline(time.Now().Add(pcpWait << try)); err != nil || ctx.Err() != nil {
			return answer, errors.Join(err, ctx.Err())
		}
		for {
			n, err := conn.Read(b)
			if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
				break
			}
			if err != nil {
				return answer, err
			}
			if answer, err = read(b[:n]); !errors.Is(err, errOther) {
				return answer, err
			}
		}
	}
	return answer, errors.New("the router does not answer")
}

var (
	errOther  = errors.New("an answer to something else")
	errNATPMP = errors.New("the router speaks NAT-PMP alone")
)

// mapping holds a router's answer. NAT-PMP says nothing of the address.
type mapping struct {
	at       netip.AddrPort
	lifetime time.Duration
}

// pcpRequest returns a MAP request of PCP (RFC 6887, sections 7.1 and 11.1).
func (r *router) pcpRequest(p socketPort, outside uint16, lifetime time.Duration) []byte {
	b := make([]byte, 60)
	b[0], b[1] = 2, 1
	binary.BigEndian.PutUint32(b[4:], uint32(lifetime/time.Second))
	self := r.LocalAddr().(*net.UDPAddr).AddrPort().Addr().As16()
	copy(b[8:], self[:])
	copy(b[24:], r.nonce[:])
	b[36] = 17
	if p.tcp {
		b[36] = 6
	}
	binary.BigEndian.PutUint16(b[40:], p.port)
	binary.BigEndian.PutUint16(b[42:], outside)
	b[54], b[55] = 0xff, 0xff // any IPv4 address
	return b
}

// readPCP reads the answer to a MAP request. A router that knows NAT-PMP alone answers in it.
func readPCP(b []byte, p socketPort, nonce [12]byte) (mapping, error) {
	if len(b) >= 4 && b[0] == 0 {
		return mapping{}, errNATPMP
	}
	if len(b) < 60 || b[0] != 2 || b[1] != 0x81 || [12]byte(b[24:36]) != nonce || (b[36] == 6) != p.tcp || binary.BigEndian.Uint16(b[40:]) != p.port {
		return mapping{}, errOther
	}
	if b[3] != 0 {
		return mapping{}, fmt.Errorf("the router refuses: PCP result %d", b[3])
	}
	at := netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[44:60])).Unmap(), binary.BigEndian.Uint16(b[42:]))
	return checkMapping(mapping{at, time.Duration(binary.BigEndian.Uint32(b[4:])) * time.Second})
}

// natPMPRequest returns a mapping request of NAT-PMP (RFC 6886, section 3.3).
func natPMPRequest(p socketPort, outside uint16, lifetime time.Duration) []byte {
	b := make([]byte, 12)
	b[1] = 1
	if p.tcp {
		b[1] = 2
	}
	binary.BigEndian.PutUint16(b[4:], p.port)
	binary.BigEndian.PutUint16(b[6:], outside)
	binary.BigEndian.PutUint32(b[8:], uint32(lifetime/time.Second))
	return b
}

// readNATPMP reads the answer to a mapping request, without an address.
func readNATPMP(b []byte, p socketPort) (mapping, error) {
	if len(b) < 16 || b[0] != 0 || b[1] < 129 || b[1] > 130 || (b[1] == 130) != p.tcp || binary.BigEndian.Uint16(b[8:]) != p.port {
		return mapping{}, errOther
	}
	if result := binary.BigEndian.Uint16(b[2:]); result != 0 {
		return mapping{}, fmt.Errorf("the router refuses: NAT-PMP result %d", result)
	}
	at := netip.AddrPortFrom(netip.IPv4Unspecified(), binary.BigEndian.Uint16(b[10:]))
	return mapping{at, time.Duration(binary.BigEndian.Uint32(b[12:])) * time.Second}, nil
}

// readNATPMPAddress reads the answer to a request for the address outside.
func readNATPMPAddress(b []byte) (netip.Addr, error) {
	if len(b) < 12 || b[0] != 0 || b[1] != 128 {
		return netip.Addr{}, errOther
	}
	if result := binary.BigEndian.Uint16(b[2:]); result != 0 {
		return netip.Addr{}, fmt.Errorf("the router refuses: NAT-PMP result %d", result)
	}
	m, err := checkMapping(mapping{at: netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[8:12])), 1)})
	return m.at.Addr(), err
}

// checkMapping refuses addresses that lead nowhere.
func checkMapping(m mapping) (mapping, error) {
	if ip := m.at.Addr(); !ip.Is4() || !ip.IsGlobalUnicast() || m.at.Port() == 0 {
		return mapping{}, fmt.Errorf("the router maps to %s", m.at)
	}
	return m, nil
}
