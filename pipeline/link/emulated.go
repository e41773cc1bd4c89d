package link

import (
	"cmp"
	"fmt"
	"net"
	"slices"

	"pnode/planner/plan"
)

// EmulatedOptions describe an emulated cluster.
type EmulatedOptions struct {
	Peers int
	// Seed decides the peers' keys and IDs, and all losses and jitter.
	Seed uint64
	// Shape is that of every link at first; the zero value is a perfect network.
	Conditions LinkConditions
}

// Emulated is a cluster of peers joined by emulated links, on which real QUIC runs, with
// identities that are verified. It keeps to the clock of the time package, so that in a
// testing/synctest bubble it runs in virtual time; all of it, Close included, then has to
// happen within the bubble.
type Emulated struct {
	netem    *netem
	networks []*quicNetwork // sorted by ID
}

// NewEmulated makes the peers and their links.
func NewEmulated(opt EmulatedOptions) (*Emulated, error) {
	if opt.Peers < 1 || opt.Peers > 1<<16-2 {
		return nil, fmt.Errorf("link: emulated cluster of %d peers, 1 to %d are accepted", opt.Peers, 1<<16-2)
	}
	em := &Emulated{netem: newNetem(opt.Seed, opt.Conditions)}
	book := map[plan.PeerID]net.Addr{}
	var ids []identity
	for i := range opt.Peers {
		ids = append(ids, newIdentity(opt.Seed, uint64(i)))
		book[ids[i].peer] = em.netem.address(i)
	}
	for i, id := range ids {
		conn := em.netem.listen(i)
		n, err := newQUICNetwork(id, conn, book)
		if err != nil {
			conn.Close()
			em.Close()
			return nil, err
		}
		em.networks = append(em.networks, n)
	}
	slices.SortFunc(em.networks, func(a, b *quicNetwork) int { return cmp.Compare(a.Self(), b.Self()) })
	return em, nil
}

// Peers are the IDs in ascending order.
func (em *Emulated) Peers() []plan.PeerID {
	var ids []plan.PeerID
	for _, n := range em.networks {
		ids = append(ids, n.Self())
	}
	return ids
}

// Network is the i-th peer's, in the order of Peers.
func (em *Emulated) Network(i int) Network { return em.networks[i] }

// SetShape changes the direction from one peer to another for packets sent from now on.
func (em *Emulated) SetConditions(from, to plan.PeerID, s LinkConditions) {
	em.netem.setConditions(em.addr(from), em.addr(to), s)
}

// Cut drops every packet between two peers, in both directions, until it is undone.
func (em *Emulated) Cut(a, b plan.PeerID, cut bool) {
	em.netem.setCut(em.addr(a), em.addr(b), cut)
	em.netem.setCut(em.addr(b), em.addr(a), cut)
}

// LinkCounts tells what happened to the packets from one peer to another.
func (em *Emulated) LinkCounts(from, to plan.PeerID) LinkCounts {
	return em.netem.linkCounts(em.addr(from), em.addr(to))
}

// Kill takes a peer off the network for good, without a word to the others: all packets
// from and to it are dropped.
func (em *Emulated) Kill(id plan.PeerID) { em.netem.forget(em.addr(id)) }

// Close takes all peers off and waits for their goroutines. Endpoints are closed first.
func (em *Emulated) Close() {
	for _, n := range em.networks {
		n.close()
	}
}

func (em *Emulated) addr(id plan.PeerID) address {
	return addressOf(em.network(id).conn.LocalAddr())
}

func (em *Emulated) network(id plan.PeerID) *quicNetwork {
	for _, n := range em.networks {
		if n.Self() == id {
			return n
		}
	}
	panic("link: emulated cluster has no peer " + string(id))
}
