package mesh

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
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
)

const (
	peersProtocol = protocol.ID("/pnode/peers/1")
	meshTick      = time.Second
	// exchangeEvery is the time between two questions to members drawn at random, whom they know: it heals
	// what the exchange at each first connection missed.
	exchangeEvery = 30 * time.Second
	// askEvery is the time between such questions for searchFor after a member was lost: it may have another address, which
	// others know.
	askEvery  = 3 * time.Second
	searchFor = 30 * time.Second
	dialTime  = 15 * time.Second
	maxDials  = 8
	// few is how many members a node of a large run dials besides those that Want names and those that it was connected to. With those that
	// dial it, about twice as many are connected.
	few = 16
	// unknownEvery is the least time between two questions for members of whom only messages came.
	unknownEvery = time.Second
	// The pauses before a dial whose connection vanished is tried again.
	firstPause   = 20 * time.Millisecond
	longestPause = time.Second
)

// Config holds what a Mesh needs.
type Config struct {
	Host    host.Host
	RunKeys admission.Run
	// MaxMembers is how many members a run may have for all of them to be connected.
	MaxMembers int
	Streams    *streams.Streams
	Peers      *admission.Peers
	Store      *peerstore.Store
	Tasks      *tasks.Group
	// Belongs reports whether a peer belongs to the run, and whether that can be told here yet.
	Belongs func(plan.PeerID) (belongs, told bool)
	// Drop closes all connections with a peer, whose membership has expired.
	Drop func(peer.ID)
	// Busy reports whether connections beside libp2p's own go to a peer.
	Busy func(peer.ID) bool
	// Standing begins the names of protocols whose streams are there for as long as a connection is, whether it is used or not. Tags are
	// those under which libp2p's connection manager protects peers that others need.
	Standing, Tags []string
	// Now returns the time by which memberships end.
	Now func() time.Time
	Log *slog.Logger
}

// Mesh keeps this node connected: it dials known members, and bootstrap addresses, with backoff: all of up to MaxMembers, and
// of more than that a few; it asks members for others; it ends expired memberships. Its methods may be called from any
// goroutine.
type Mesh struct {
	Config
	// wake makes the loop look at the store at once.
	wake chan struct{}
	// begun is when the mesh was made, lost how long after that a member was lost last, in nanoseconds; 0 is never.
	begun time.Time
	lost  atomic.Int64
	// asked is how long after begun members were asked for one of whom only a message had come, in nanoseconds; 0 is never.
	asked  atomic.Int64
	wanted atomic.Pointer[map[peer.ID]bool]
	// dialing counts the dials that were begun and have not ended.
	dialing atomic.Int64
	// shedding is whether there are too many connections, for Run alone; parting the member that is being asked.
	shedding bool
	parting  atomic.Pointer[peer.ID]
}

// New answers members that ask for peers. Run does the rest.
func New(cfg Config) *Mesh {
	m := &Mesh{Config: cfg, wake: make(chan struct{}, 1), begun: time.Now()}
	m.wanted.Store(&map[peer.ID]bool{})
	m.Host.SetStreamHandler(peersProtocol, m.Streams.MembersOnly(func(st network.Stream) {
		defer st.Close()
		if err := st.SetDeadline(time.Now().Add(admission.TimeLimit)); err != nil {
			st.Reset()
			return
		}
		m.Refresh()
		records := m.Store.Records(st.Conn().RemotePeer(), admission.MaxRecords)
		if err := streams.WriteMessage(st, admission.AppendRecords(nil, records)); err != nil {
			st.Reset()
		}
	}))
	m.answerParting()
	return m
}

// large reports whether the run has too many members for all of them to be connected, and how many are known.
func (m *Mesh) large() (known int, large bool) {
	known = m.Store.Members()
	return known, known >= m.MaxMembers
}

// exchangeEvery returns the time between two questions, whose answers grow with the members.
func (m *Mesh) exchangeEvery() time.Duration {
	known, large := m.large()
	if !large {
		return exchangeEvery
	}
	return exchangeEvery * time.Duration(known) / time.Duration(m.MaxMembers)
}

// Want has connections with these members kept, however many there are.
func (m *Mesh) Want(peers []plan.PeerID) {
	wanted := map[peer.ID]bool{}
	for _, p := range peers {
		if id, err := peer.Decode(string(p)); err == nil {
			wanted[id] = true
		}
	}
	m.wanted.Store(&wanted)
	m.Hurry()
}

// Joined notes that a peer is connected and a member, and asks it whom it knows. Of many members' answers a few are enough: each has all.
func (m *Mesh) Joined(p peer.ID) {
	m.Store.Met(p)
	if known, large := m.large(); !large || m.Peers.Count() <= few/4 || rand.IntN(known) < few {
		m.AskPeers(p)
	}
}

// Unknown asks the member that passed a message on for its author, of whom nothing is known here.
func (m *Mesh) Unknown(from peer.ID) {
	now, last := int64(time.Since(m.begun)), m.asked.Load()
	if (last == 0 || now-last >= int64(unknownEvery)) && m.asked.CompareAndSwap(last, now) {
		m.AskPeers(from)
	}
}

// Refresh takes over the addresses that members announced to libp2p since their greeting, such as a mapped port or
// a relay's.
func (m *Mesh) Refresh() {
	for _, c := range m.Peers.Members() {
		m.Store.Learn(c, m.Host.Peerstore().Addrs(c.ID()))
	}
}

// Run dials and asks until ctx ends.
func (m *Mesh) Run(ctx context.Context) {
	tick := time.NewTicker(meshTick)
	defer tick.Stop()
	asked := time.Now()
	exchange := time.NewTicker(askEvery)
	defer exchange.Stop()
	room := make(chan struct{}, maxDials)
	for {
		select {
		case <-ctx.Done():
			return
		case <-exchange.C:
			now := time.Now()
			lost := time.Duration(m.lost.Load())
			if now.Sub(asked) < m.exchangeEvery() && (lost == 0 || now.Sub(m.begun)-lost > searchFor) {
				continue
			}
			asked = now
			if members := m.Peers.Members(); len(members) > 0 {
				m.AskPeers(members[rand.IntN(len(members))].ID())
			}
			continue
		case <-tick.C:
		case <-m.wake:
		}
		for _, p := range m.Store.Expire(m.Now()) {
			m.Log.Info("swarm: membership expired", "peer", p)
			m.Drop(p)
		}
		m.dialDue(room)
		m.partDue()
	}
}

// Lost has Run look at once whom to dial, and ask the others for a while where a member may have gone, unless both ends
// agreed that it goes.
func (m *Mesh) Lost(p peer.ID) {
	if m.Store.WasMet(p) {
		m.lost.Store(int64(time.Since(m.begun)))
	}
	m.Hurry()
}

// Hurry makes Run look at once whom to dial.
func (m *Mesh) Hurry() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// dialDue starts dialing whoever is due, as room admits.
func (m *Mesh) dialDue(room chan struct{}) {
	members, wanted := m.Peers.Count(), *m.wanted.Load()
	_, large := m.large()
	left := m.few() - members - int(m.dialing.Load()) // of whom it does not matter
	infos := m.Store.Due(time.Now(), func(p peer.ID, met bool) bool {
		switch {
		case p == m.Host.ID() || m.Peers.Member(p) || m.Peers.Blocked(p):
			return true
		case !large:
			return members >= m.MaxMembers
		case met || wanted[p]:
			return false
		}
		left--
		return left < 0
	})
	for _, info := range infos {
		m.dialing.Add(1)
		m.Tasks.Run(func(ctx context.Context) {
			defer m.dialing.Add(-1)
			select {
			case room <- struct{}{}:
				defer func() { <-room }()
			case <-ctx.Done():
				return
			}
			ctx, cancel := context.WithTimeout(ctx, dialTime)
			defer cancel()
			err := m.dial(ctx, info)
			m.Store.Tried(info.ID, err, time.Now())
			if err != nil {
				m.Log.Debug("swarm: dial", "peer", info.ID, "err", err)
			}
		})
	}
}

// AskPeers learns whom p knows, in the background, and dials the new ones.
func (m *Mesh) AskPeers(p peer.ID) {
	m.Tasks.Run(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, admission.TimeLimit)
		defer cancel()
		n, err := m.FetchPeers(ctx, p)
		if err != nil {
			m.Log.Debug("swarm: ask for peers", "peer", p, "err", err)
		}
		if n > 0 {
			m.Hurry()
		}
	})
}

// verify returns why a capability does not let its peer in; nil if it does. One that is in the store has been verified: each
// member asks each other one, and all tell of all, so that signatures would be verified as often as the cube of the members.
func (m *Mesh) verify(c admission.Capability, now time.Time) error {
	known, ok := m.Store.Capability(c.ID())
	if ok && now.Before(c.Expires) && bytes.Equal(known.Encode(), c.Encode()) {
		return nil
	}
	return c.Verify(m.RunKeys, now)
}

// FetchPeers reads p's records into the store and returns how many were good. Each is verified like a peer's own
// hello; a bad one is left out, and so is one of a peer that does not belong to the run: the signatures prove that an
// owner let somebody in, not whom.
func (m *Mesh) FetchPeers(ctx context.Context, p peer.ID) (int, error) {
	st, err := m.Streams.Open(ctx, p, peersProtocol)
	if err != nil {
		return 0, err
	}
	defer st.Reset()
	stop := context.AfterFunc(ctx, func() { st.Reset() })
	defer stop()
	// Ending the request sends it. A quick peer has answered and closed before it sees the
	// end, which is then an error here: only its answer tells whether it was asked.
	_ = st.CloseWrite()
	b, err := streams.ReadMessage(st, admission.MaxRecordsBytes)
	if err != nil {
		return 0, err
	}
	records, err := admission.DecodeRecords(b)
	if err != nil {
		return 0, fmt.Errorf("peer %s: %w", p, err)
	}
	now, n := m.Now(), 0
	for _, r := range records {
		c, err := admission.DecodeCapability(r.Capability)
		if err == nil {
			err = m.verify(c, now)
		}
		if err != nil || c.ID() == m.Host.ID() || m.Peers.Blocked(c.ID()) {
			continue
		}
		note := m.Store.Learn
		switch belongs, told := m.Belongs(c.Peer); {
		case told && !belongs:
			continue
		case !told:
			note = m.Store.Hear
		}
		if note(c, peerstore.Believable(r.Addrs, st.Conn().RemoteMultiaddr())) {
			n++
		}
	}
	return n, nil
}
