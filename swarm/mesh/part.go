package mesh

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"

	"pnode/swarm/admission"
	"pnode/swarm/streams"
)

const (
	partProtocol = protocol.ID("/pnode/part/1")
	// idleTime is for how long neither end has used a connection that may be closed.
	idleTime = 5 * time.Minute
	// relayTags begins the names under which libp2p notes peers that this node relays for.
	relayTags = "relay-"
	// maxPartBytes bounds a question.
	maxPartBytes = binary.MaxVarintLen64
	partYes      = byte(1)
	// partStays takes a question back that was answered with yes.
	partStays = byte(2)
)

// libp2p's connection manager closes what is above its marks, whatever the other end needs, and the other end dials again:
// members are protected from it. In a large run the two ends agree instead: who has more than twice the connections that it would dial asks
// members whether they need theirs, until it has one and a half times as many.

// answerParting tells members whether this node needs the connection with them. One that it gives up is not dialed again for
// having been there.
func (m *Mesh) answerParting() {
	m.Host.SetStreamHandler(partProtocol, m.Streams.MembersOnly(func(st network.Stream) {
		p := st.Conn().RemotePeer()
		defer st.Close()
		if st.SetDeadline(time.Now().Add(admission.TimeLimit)) != nil {
			st.Reset()
			return
		}
		b, err := streams.ReadMessage(st, maxPartBytes)
		theirs, n := binary.Uvarint(b)
		if err != nil || n <= 0 || n != len(b) {
			st.Reset()
			return
		}
		if !m.spare(p, theirs) {
			if err := streams.WriteMessage(st, []byte{0}); err != nil {
				st.Reset()
			}
			return
		}
		m.Store.Part(p) // before the other end closes the connection
		err = streams.WriteMessage(st, []byte{partYes})
		if err == nil {
			b, err = streams.ReadMessage(st, 1)
			if err != nil || len(b) != 1 || b[0] != partStays {
				return
			}
		}
		m.Store.Met(p)
	}))
}

// spare reports whether this node does without a member that asks and has so many connections. Who has few
// itself gives up one with somebody who has too many, and dials another member at random. Of two that ask each other at once only
// the one with the larger ID is told yes: else one could close what the other has just said to keep.
func (m *Mesh) spare(p peer.ID, theirs uint64) bool {
	if asked := m.parting.Load(); asked != nil && *asked == p && m.Host.ID() < p {
		return false
	}
	return m.idle(p) && (m.Peers.Count() > m.few() || theirs > uint64(2*m.few()))
}

// idle reports whether nothing on this node needs a member, or has used its connection lately.
func (m *Mesh) idle(p peer.ID) bool {
	return !(*m.wanted.Load())[p] && m.Peers.Unused(p) >= idleTime && !m.protected(p) && !m.carries(p) && !m.Busy(p)
}

// protected reports whether libp2p's connection manager has it that a member passes messages on to this node, or is reached through it.
func (m *Mesh) protected(p peer.ID) bool {
	manager := m.Host.ConnManager()
	if slices.ContainsFunc(m.Tags, func(tag string) bool { return manager.IsProtected(p, tag) }) {
		return true
	}
	info := manager.GetTagInfo(p)
	if info == nil {
		return false
	}
	for tag := range info.Tags {
		if strings.HasPrefix(tag, relayTags) {
			return true
		}
	}
	return false
}

// carries reports whether a member's connections have a stream that stands for more than that they are there.
func (m *Mesh) carries(p peer.ID) bool {
	for _, c := range m.Host.Network().ConnsToPeer(p) {
		for _, st := range c.GetStreams() {
			standing := func(prefix string) bool { return strings.HasPrefix(string(st.Protocol()), prefix) }
			if st.Protocol() != partProtocol && !slices.ContainsFunc(m.Standing, standing) {
				return true
			}
		}
	}
	return false
}

// few returns how many members a node dials in a large run, besides those that it needs.
func (m *Mesh) few() int { return min(few, m.MaxMembers) }

// partDue asks a member, once a second, whether it needs its connection, while there are too many. Those that Want names do
// not count. A run is large enough for it from a quarter more members on than for all to be connected: else connections would come
// and go with one member.
func (m *Mesh) partDue() {
	known, _ := m.large()
	if known < m.MaxMembers*5/4 || m.Peers.Count() <= m.few() {
		m.shedding = false
		return
	}
	var free []peer.ID
	wanted := *m.wanted.Load()
	for _, c := range m.Peers.Members() {
		if !wanted[c.ID()] {
			free = append(free, c.ID())
		}
	}
	if m.shedding = len(free) > 2*m.few() || m.shedding && len(free) > m.few()*3/2; !m.shedding {
		return
	}
	free = slices.DeleteFunc(free, func(p peer.ID) bool { return m.Peers.Unused(p) < idleTime })
	rand.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
	// one that was told yes is not asked: it closes the connection, or says that it stays
	i := slices.IndexFunc(free, func(p peer.ID) bool { return m.idle(p) && m.Store.WasMet(p) })
	if i >= 0 && m.parting.CompareAndSwap(nil, &free[i]) {
		m.Tasks.Run(func(ctx context.Context) {
			defer m.parting.Store(nil)
			if err := m.part(ctx, free[i]); err != nil {
				m.Log.Debug("swarm: close an idle connection", "peer", free[i], "err", err)
			}
		})
	}
}

// errNeeded says that an end needs the connection.
var errNeeded = errors.New("it is needed")

// part closes the connection with a member that does not need it either. Else it counts as used: the member is asked again
// after idleTime at the earliest.
func (m *Mesh) part(ctx context.Context, p peer.ID) (err error) {
	defer func() {
		if err != nil {
			m.Peers.Use(p)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, admission.TimeLimit)
	defer cancel()
	st, err := m.Streams.Open(ctx, p, partProtocol)
	if err != nil {
		return err
	}
	defer st.Reset()
	defer context.AfterFunc(ctx, func() { st.Reset() })()
	if err := streams.WriteMessage(st, binary.AppendUvarint(nil, uint64(m.Peers.Count()))); err != nil {
		return err
	}
	answer, err := streams.ReadMessage(st, 1)
	switch {
	case err != nil:
		return err
	case len(answer) != 1 || answer[0] != partYes:
		return errNeeded
	case !m.idle(p): // it was used meanwhile, and the other end counts on its end
		if err := streams.WriteMessage(st, []byte{partStays}); err != nil {
			return err
		}
		_, _ = streams.ReadMessage(st, 1) // until the other end has read that, and ends the stream
		return errNeeded
	}
	m.Store.Part(p)
	m.Log.Info("swarm: closed an idle connection", "peer", p)
	if err := m.Host.Network().ClosePeer(p); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	return nil
}
