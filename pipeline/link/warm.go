package link

import (
	"time"

	"pnode/pipeline/wire"
	"pnode/planner"
)

// A connection is warmed with at most warmBytes in warmTime: from 32 packets a congestion
// window has grown to 5 MB, 1 Gbit/s at 40 ms, after 7 round trips and some 10 MB.
const (
	warmBytes = 8 << 20
	warmTime  = time.Second
)

// Warm has the connections with a peer find their pace before the first message needs it, by
// sending bytes that mean nothing, less urgent than anything else, while nothing else is
// under way. It is of use to both directions: a receiver that never sent anything itself is
// also slow to say that it has room for more. Peers that are not of the session are ignored.
func (s *Session) Warm(peers ...planner.PeerID) {
	for _, id := range peers {
		if r := s.remotes[id]; r != nil {
			r.warmOnce.Do(func() { close(r.warming) })
		}
	}
}

// warm waits until it is asked for and then sends padding.
func (s *stripe) warm() {
	select {
	case <-s.remote.warming:
	case <-s.remote.ctx.Done():
		return
	case <-s.ctx.Done():
		return
	}
	l, err := s.openLane(wire.Control)
	if err != nil {
		s.failed(err)
		return
	}
	l.stream.SetPriority(urgencyWarm, true)
	padding := wire.Frame{Tag: wire.Tag{Kind: wire.Padding, Generation: s.remote.session.generation}, Payload: make([]byte, wire.MaxPieceBytes)}
	piece := append(wire.AppendPiece(nil, wire.AppendHeader(nil, padding), 0, 0), padding.Payload...)
	end := time.Now().Add(warmTime)
	for sent := 0; sent < warmBytes && s.remote.ctx.Err() == nil && !s.remote.busy.runs() && time.Now().Before(end); sent += len(piece) {
		if _, err := l.stream.Write(piece); err != nil {
			s.failed(err)
			return
		}
	}
	l.leave()
}
