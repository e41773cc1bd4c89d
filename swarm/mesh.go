package swarm

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
)

const (
	peersProtocol = protocol.ID("/pnode/peers/1")
	// maxRecords and MaxPeersBytes bound one exchange; 512 records with 8 addresses of
	// some 60 bytes come to 420 KB.
	maxRecords    = 512
	MaxPeersBytes = 1 << 20
	meshTick      = time.Second
	// exchangeEvery is how often a member drawn at random is asked whom it knows: it
	// heals what the exchange at each first connection missed.
	exchangeEvery = 30 * time.Second
	dialTime      = 15 * time.Second
	maxDials      = 8
)

// mesh keeps this node connected: it dials known members until MaxMesh are connected, and
// bootstraps, with backoff; it asks members for others; it ends expired memberships.
func (s *Swarm) mesh(ctx context.Context) {
	tick := time.NewTicker(meshTick)
	defer tick.Stop()
	exchange := time.NewTicker(exchangeEvery)
	defer exchange.Stop()
	room := make(chan struct{}, maxDials)
	for {
		select {
		case <-ctx.Done():
			return
		case <-exchange.C:
			if m := s.door.members(); len(m) > 0 {
				p := m[rand.IntN(len(m))].peer
				s.tasks.run(func(ctx context.Context) { s.askPeers(ctx, p) })
			}
			continue
		case <-tick.C:
		case <-s.wake:
		}
		for _, p := range s.book.expire(time.Now()) {
			s.log.Info("swarm: membership expired", "peer", p)
			s.disconnect(p)
		}
		s.dialDue(room)
	}
}

// hurry runs the mesh loop now.
func (s *Swarm) hurry() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// dialDue starts dialing whoever is due, at most maxDials at a time.
func (s *Swarm) dialDue(room chan struct{}) {
	members := len(s.door.members())
	infos := s.book.due(time.Now(), func(p peer.ID) bool {
		return p == s.host.ID() || s.door.isMember(p) || s.door.isBlocked(p) || members >= s.cfg.MaxMesh
	})
	for _, info := range infos {
		s.tasks.run(func(ctx context.Context) {
			select {
			case room <- struct{}{}:
				defer func() { <-room }()
			case <-ctx.Done():
				return
			}
			ctx, cancel := context.WithTimeout(ctx, dialTime)
			defer cancel()
			err := s.dial(ctx, info)
			s.book.tried(info.ID, err, time.Now())
			if err != nil {
				s.log.Debug("swarm: dial", "peer", info.ID, "err", err)
			}
		})
	}
}

// servePeers answers members with the records of the others.
func (s *Swarm) servePeers() {
	s.host.SetStreamHandler(peersProtocol, s.membersOnly(func(st network.Stream) {
		defer st.Close()
		if err := st.SetDeadline(time.Now().Add(admissionTime)); err != nil {
			st.Reset()
			return
		}
		s.refresh()
		records := s.book.records(st.Conn().RemotePeer(), maxRecords)
		if err := WriteMessage(st, appendRecords(nil, records)); err != nil {
			st.Reset()
		}
	}))
}

// askPeers learns whom p knows and dials the new ones.
func (s *Swarm) askPeers(ctx context.Context, p peer.ID) {
	ctx, cancel := context.WithTimeout(ctx, admissionTime)
	defer cancel()
	n, err := s.fetchPeers(ctx, p)
	if err != nil {
		s.log.Debug("swarm: ask for peers", "peer", p, "err", err)
	}
	if n > 0 {
		s.hurry()
	}
}

// fetchPeers reads p's records into the book. Each is verified like a peer's own hello;
// a bad one is left out. It counts those that were good.
func (s *Swarm) fetchPeers(ctx context.Context, p peer.ID) (int, error) {
	st, err := s.newStream(ctx, p, peersProtocol)
	if err != nil {
		return 0, err
	}
	defer st.Reset()
	stop := context.AfterFunc(ctx, func() { st.Reset() })
	defer stop()
	// Ending the request sends it. A quick peer has answered and closed before it sees the
	// end, which is then an error here: only its answer tells whether it was asked.
	_ = st.CloseWrite()
	b, err := ReadMessage(st, MaxPeersBytes)
	if err != nil {
		return 0, err
	}
	records, err := decodeRecords(b)
	if err != nil {
		return 0, fmt.Errorf("peer %s: %w", p, err)
	}
	now, n := time.Now(), 0
	for _, r := range records {
		c, err := DecodeCapability(r.Capability)
		if err == nil {
			err = c.Verify(s.cfg.OwnerKey, s.cfg.Run, now)
		}
		if err != nil || c.peer == s.host.ID() || s.door.isBlocked(c.peer) {
			continue
		}
		if s.book.learn(c, believable(r.Addrs, st.Conn().RemoteMultiaddr())) {
			n++
		}
	}
	return n, nil
}

// appendRecords writes at most MaxPeersBytes.
func appendRecords(dst []byte, records []record) []byte {
	at := len(dst)
	dst = append(dst, 0, 0)
	n := 0
	for _, r := range records {
		next := appendAddrs(appendBytes(dst, r.Capability), r.Addrs, maxRecordAddrs)
		if len(next)-at > MaxPeersBytes || n == maxRecords {
			break
		}
		dst = next
		n++
	}
	binary.LittleEndian.PutUint16(dst[at:], uint16(n))
	return dst
}

func decodeRecords(b []byte) ([]record, error) {
	if len(b) > MaxPeersBytes {
		return nil, malformed("peer list of %d bytes, at most %d are accepted", len(b), MaxPeersBytes)
	}
	d := decoder{b: b}
	var out []record
	for range d.count(maxRecords) {
		r := record{Capability: d.bytes(MaxCapabilityBytes), Addrs: readAddrs(&d, maxRecordAddrs)}
		if d.err != nil {
			return nil, d.err
		}
		out = append(out, r)
	}
	return out, d.end()
}
