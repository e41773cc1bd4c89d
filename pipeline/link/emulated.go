package link

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"pnode/planner/plan"
	"pnode/swarm/transport"
)

// EmulatedOptions describe an emulated cluster.
type EmulatedOptions struct {
	Peers int
	// Seed decides the peers' keys and IDs, and all losses and jitter.
	Seed uint64
	// Conditions hold for every link at first; the zero value is a perfect network.
	Conditions LinkConditions
}

// Emulated is a cluster of peers joined by emulated links, on which real QUIC runs, with
// identities that are verified. It keeps to the clock of the time package, so that in a
// testing/synctest bubble it runs in virtual time; all of it, Close included, then has to
// happen within the bubble.
type Emulated struct {
	opt      EmulatedOptions
	networks []*quicNetwork // sorted by ID

	mu    sync.Mutex // guards the rest
	lines map[direction]*line
	// uplinks are by sender; all lines of limited rates share it.
	uplinks map[netip.AddrPort]*uplink
	conns   map[netip.AddrPort]*packetConn
}

// direction names a link.
type direction struct{ from, to netip.AddrPort }

// NewEmulated makes the peers and their links.
func NewEmulated(opt EmulatedOptions) (*Emulated, error) {
	if opt.Peers < 1 || opt.Peers > 1<<16-2 {
		return nil, fmt.Errorf("link: emulated cluster of %d peers, 1 to %d are accepted", opt.Peers, 1<<16-2)
	}
	em := &Emulated{opt: opt, lines: map[direction]*line{}, uplinks: map[netip.AddrPort]*uplink{}, conns: map[netip.AddrPort]*packetConn{}}
	book := map[plan.PeerID]net.Addr{}
	var ids []identity
	for i := range opt.Peers {
		ids = append(ids, newIdentity(opt.Seed, uint64(i)))
		book[ids[i].peer] = em.listen(i).LocalAddr()
	}
	for _, id := range ids {
		n, err := newQUICNetwork(id, em.conns[addressOf(book[id.peer])], book)
		if err != nil {
			em.Close()
			return nil, err
		}
		em.networks = append(em.networks, n)
	}
	slices.SortFunc(em.networks, func(a, b *quicNetwork) int { return cmp.Compare(a.Self(), b.Self()) })
	return em, nil
}

// listen makes the i-th connection, with an address in 10.0.0.0/8.
func (em *Emulated) listen(i int) *packetConn {
	addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte((i + 1) >> 8), byte(i + 1)}), 4242)
	c := &packetConn{network: em, addr: addr}
	em.mu.Lock()
	defer em.mu.Unlock()
	em.conns[addr] = c
	return c
}

// Peers returns the IDs in ascending order.
func (em *Emulated) Peers() []plan.PeerID {
	var ids []plan.PeerID
	for _, n := range em.networks {
		ids = append(ids, n.Self())
	}
	return ids
}

// Network returns the network of the i-th peer, in the order of Peers.
func (em *Emulated) Network(i int) Network { return em.networks[i] }

// SetConditions changes the direction from one peer to another for packets sent from now on.
func (em *Emulated) SetConditions(from, to plan.PeerID, s LinkConditions) {
	em.change(em.addr(from), em.addr(to), func(l *line) { l.conditions = s })
}

// SetUplink has a peer send no more than so many bytes a second over all of its links together.
func (em *Emulated) SetUplink(from plan.PeerID, bytesPerS int64) {
	at := em.addr(from)
	em.mu.Lock()
	defer em.mu.Unlock()
	em.uplinks[at] = &uplink{bytesPerS: float64(bytesPerS)}
	for d, l := range em.lines {
		if d.from == at {
			l.uplink = em.uplinks[at]
		}
	}
}

// LinkCounts returns what happened to the packets from one peer to another.
func (em *Emulated) LinkCounts(from, to plan.PeerID) (n LinkCounts) {
	em.change(em.addr(from), em.addr(to), func(l *line) { n = l.counts })
	return n
}

// Close takes all peers off and waits for their goroutines. Endpoints are closed first.
func (em *Emulated) Close() {
	for _, n := range em.networks {
		n.close()
	}
}

func (em *Emulated) addr(id plan.PeerID) netip.AddrPort {
	for _, n := range em.networks {
		if n.Self() == id {
			return addressOf(n.conn.LocalAddr())
		}
	}
	panic("link: emulated cluster has no peer " + string(id))
}

// change calls f for the state of a direction, which is made on first use.
func (em *Emulated) change(from, to netip.AddrPort, f func(*line)) {
	em.mu.Lock()
	defer em.mu.Unlock()
	d := direction{from, to}
	if em.lines[d] == nil {
		a, b := from.Addr().As4(), to.Addr().As4()
		l := newLine(em.opt.Seed, uint64(a[2])<<24|uint64(a[3])<<16|uint64(b[2])<<8|uint64(b[3]))
		l.conditions, l.uplink = em.opt.Conditions, em.uplinks[from]
		em.lines[d] = l
	}
	f(em.lines[d])
}

// forget takes a connection off the network.
func (em *Emulated) forget(addr netip.AddrPort) {
	em.mu.Lock()
	defer em.mu.Unlock()
	delete(em.conns, addr)
}

// identity is an emulated peer's key and the certificate that it signs for itself. The
// peer's ID is its public key in hexadecimal.
type identity struct {
	peer plan.PeerID
	cert tls.Certificate
}

// newIdentity makes the key number n of a seed: fit for emulation, secret to nobody.
func newIdentity(seed, n uint64) identity {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], seed)
	binary.LittleEndian.PutUint64(b[8:], n)
	secret := sha256.Sum256(b[:])
	key := ed25519.NewKeyFromSeed(secret[:])
	public := key.Public().(ed25519.PublicKey)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "emulated peer"},
		NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<33, 0),
	}
	der, err := x509.CreateCertificate(nil, template, template, public, key)
	if err != nil {
		panic("link: certificate of an emulated peer: " + err.Error()) // nothing in it can fail
	}
	return identity{peer: peerOf(public), cert: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}}
}

func peerOf(public ed25519.PublicKey) plan.PeerID {
	return plan.PeerID(hex.EncodeToString(public))
}

var errIdentity = errors.New("link: identity is not the expected one")

// verified returns the peer whose key the other end of a handshake has proved to hold.
func verified(s tls.ConnectionState) (plan.PeerID, error) {
	if len(s.PeerCertificates) != 1 {
		return "", fmt.Errorf("%w: %d certificates", errIdentity, len(s.PeerCertificates))
	}
	public, ok := s.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
	if !ok {
		return "", fmt.Errorf("%w: a key of type %T", errIdentity, s.PeerCertificates[0].PublicKey)
	}
	return peerOf(public), nil
}

// config accepts the peers for which admit is true.
func (id identity) config(admit func(plan.PeerID) bool) *tls.Config {
	return &tls.Config{
		Certificates: []tls.Certificate{id.cert}, NextProtos: []string{ALPN}, MinVersion: tls.VersionTLS13,
		ClientAuth: tls.RequireAnyClientCert, SessionTicketsDisabled: true,
		InsecureSkipVerify: true, // there is no authority: the key itself is checked below
		VerifyConnection: func(s tls.ConnectionState) error {
			peer, err := verified(s)
			if err == nil && !admit(peer) {
				err = fmt.Errorf("%w: %s", errIdentity, peer)
			}
			return err
		},
	}
}

// quicNetwork is a Network of peers at fixed addresses, over any packet connection.
type quicNetwork struct {
	id        identity
	conn      net.PacketConn
	transport *quic.Transport
	listener  *quic.Listener
	book      map[plan.PeerID]net.Addr // shared, complete before the first network is made
}

// newQUICNetwork takes over conn once it succeeds.
func newQUICNetwork(id identity, conn net.PacketConn, book map[plan.PeerID]net.Addr) (*quicNetwork, error) {
	n := &quicNetwork{id: id, conn: conn, transport: &quic.Transport{Conn: conn}, book: book}
	listener, err := n.transport.Listen(id.config(func(id plan.PeerID) bool { return book[id] != nil }), Config())
	if err != nil {
		return nil, fmt.Errorf("link: listen on %v: %w", conn.LocalAddr(), err)
	}
	n.listener = listener
	return n, nil
}

func (n *quicNetwork) Self() plan.PeerID { return n.id.peer }

func (n *quicNetwork) Transports(plan.PeerID) []plan.Transport { return nil }

func (n *quicNetwork) Dial(ctx context.Context, peer plan.PeerID, _ plan.Transport) (transport.Conn, error) {
	addr := n.book[peer]
	if addr == nil {
		return nil, fmt.Errorf("%w: %s has no address", ErrStranger, peer)
	}
	conn, err := n.transport.Dial(ctx, addr, n.id.config(func(id plan.PeerID) bool { return id == peer }), Config())
	if err != nil {
		return nil, err
	}
	return transport.QUIC(conn), nil
}

func (n *quicNetwork) Accept(ctx context.Context) (transport.Conn, plan.PeerID, error) {
	for {
		conn, err := n.listener.Accept(ctx)
		if err != nil {
			return nil, "", err
		}
		peer, err := verified(conn.ConnectionState().TLS)
		if err != nil {
			conn.CloseWithError(quic.ApplicationErrorCode(codeStranger), err.Error())
			continue
		}
		return transport.QUIC(conn), peer, nil
	}
}

// close ends all connections without telling the other ends.
func (n *quicNetwork) close() {
	n.transport.Close()
	n.conn.Close()
}

// Config is the QUIC configuration the data plane is made for: windows that let one
// stream fill 1 Gbit/s at 250 ms, and that leave a connection room for control messages when
// each of the three other classes has filled a stream's that is not read; an idle timeout that forgets dead connections soon
// (sessions keep theirs alive by heartbeats), bidirectional streams only.
func Config() *quic.Config {
	return &quic.Config{
		InitialStreamReceiveWindow: 3 << 20, InitialConnectionReceiveWindow: 10 << 20,
		MaxStreamReceiveWindow: 32 << 20, MaxConnectionReceiveWindow: 104 << 20,
		MaxIdleTimeout: 10 * time.Second, MaxIncomingStreams: 256, MaxIncomingUniStreams: -1,
	}
}
