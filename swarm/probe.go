package swarm

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/quic-go/quic-go"

	"pnode/planner/plan"
)

// A probe is one stream on a connection of its own: 8 echoes of 8 bytes give the round
// trip, then the prober sends for a second at most, and the other side answers with the
// rate it received at.
const (
	probeALPN    = "pnode-probe/1"
	probeEchoes  = 8
	probeEcho    = 8
	probeMax     = 16 << 20
	probeBlock   = 64 << 10
	probeTime    = time.Second
	probeMin     = 256 << 10 // sent however long it takes, within probeLimit
	probeLimit   = 10 * time.Second
	probesServed = 2               // at once
	probePause   = 3 * time.Second // between two of one peer
	codeProbe    = quic.ApplicationErrorCode(4)
)

// prober measures links and lets others measure theirs to this node.
type prober struct {
	lane *lane
	room chan struct{}
	// mu guards last, when each peer was served.
	mu   sync.Mutex
	last map[peer.ID]time.Time
}

func newProber(s *Swarm) (*prober, error) {
	l, err := newLane(s, probeALPN)
	if err != nil {
		return nil, err
	}
	p := &prober{lane: l, room: make(chan struct{}, probesServed), last: map[peer.ID]time.Time{}}
	s.tasks.run(p.serve)
	return p, nil
}

// Probe measures the link from this node to a member: the round trip, its jitter, and the
// rate at which the member received, over at most 16 MiB or about a second. The member
// serves two probes at once and one of a peer in 3 seconds; beyond that it is ErrProbeBusy.
func (s *Swarm) Probe(ctx context.Context, p plan.PeerID) (plan.LinkProfile, error) {
	ctx, cancel := context.WithTimeout(ctx, admissionTime+probeLimit)
	defer cancel()
	profile, err := s.prober.probe(ctx, p)
	if err != nil {
		return plan.LinkProfile{}, fmt.Errorf("swarm: probe %s: %w", p, err)
	}
	return profile, nil
}

func (r *prober) probe(ctx context.Context, p plan.PeerID) (plan.LinkProfile, error) {
	conn, err := r.lane.dial(ctx, p)
	if err != nil {
		return plan.LinkProfile{}, err
	}
	defer conn.CloseWithError(0, "")
	stop := context.AfterFunc(ctx, func() { conn.CloseWithError(0, "") })
	defer stop()
	st, err := conn.OpenStreamSync(ctx)
	if err != nil {
		return plan.LinkProfile{}, probeError(ctx, err)
	}
	trips, err := echo(st)
	if err != nil {
		return plan.LinkProfile{}, probeError(ctx, err)
	}
	bytesPerS, err := push(st)
	if err != nil {
		return plan.LinkProfile{}, probeError(ctx, err)
	}
	rtt, jitter := summary(trips)
	return plan.LinkProfile{Peer: p, RTTNanos: int64(rtt), BytesPerS: bytesPerS, JitterNanos: int64(jitter)}, nil
}

// probeError translates the other side's refusals and the caller's own end.
func probeError(ctx context.Context, err error) error {
	var app *quic.ApplicationError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &app) && app.Remote && (app.ErrorCode == codeProbe || app.ErrorCode == codeBusy):
		return ErrProbeBusy
	case errors.As(err, &app) && app.Remote && app.ErrorCode == codeNotMember:
		return ErrNotMember
	}
	return err
}

// echo times the round trips.
func echo(st io.ReadWriter) ([probeEchoes]time.Duration, error) {
	var trips [probeEchoes]time.Duration
	var b [probeEcho]byte
	for i := range trips {
		start := time.Now()
		if _, err := st.Write(b[:]); err != nil {
			return trips, err
		}
		if _, err := io.ReadFull(st, b[:]); err != nil {
			return trips, err
		}
		trips[i] = time.Since(start)
	}
	return trips, nil
}

// push sends what the probe may send and reads the rate that arrived.
func push(st *quic.Stream) (bytesPerS int64, err error) {
	block := make([]byte, probeBlock)
	start := time.Now()
	for sent := 0; sent < probeMax; {
		if sent >= probeMin {
			left := probeTime - time.Since(start)
			if left <= 0 {
				break
			}
		}
		n, err := st.Write(block)
		if err != nil {
			return 0, err
		}
		sent += n
	}
	if err := st.Close(); err != nil {
		return 0, err
	}
	var b [8]byte
	if _, err := io.ReadFull(st, b[:]); err != nil {
		return 0, err
	}
	rate := binary.LittleEndian.Uint64(b[:])
	if rate == 0 || rate > 1<<50 {
		return 0, malformed("rate of %d bytes a second", rate)
	}
	return int64(rate), nil
}

// summary is the least round trip and the mean distance from it.
func summary(trips [probeEchoes]time.Duration) (rtt, jitter time.Duration) {
	rtt = trips[0]
	for _, t := range trips {
		rtt = min(rtt, t)
	}
	for _, t := range trips {
		jitter += t - rtt
	}
	return rtt, jitter / probeEchoes
}

// serve answers probes until the swarm closes.
func (r *prober) serve(ctx context.Context) {
	for {
		var c laneConn
		select {
		case c = <-r.lane.queue:
		case <-ctx.Done():
			return
		}
		if !r.allow(c.peer, time.Now()) {
			c.conn.CloseWithError(codeProbe, "busy")
			continue
		}
		r.lane.swarm.tasks.run(func(ctx context.Context) {
			defer func() { <-r.room }()
			r.answer(ctx, c.conn)
		})
	}
}

// allow takes a place for one more probe of p, when there is one.
func (r *prober) allow(p peer.ID, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.last[p]) < probePause {
		return false
	}
	select {
	case r.room <- struct{}{}:
	default:
		return false
	}
	for q, at := range r.last {
		if now.Sub(at) >= probePause {
			delete(r.last, q)
		}
	}
	r.last[p] = now
	return true
}

// answer serves one probe. The prober closes the connection when it has its answer.
func (r *prober) answer(ctx context.Context, conn *quic.Conn) {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	defer conn.CloseWithError(codeProbe, "probe over")
	st, err := conn.AcceptStream(ctx)
	if err != nil {
		return
	}
	if err := st.SetDeadline(time.Now().Add(probeLimit)); err != nil {
		return
	}
	rate, err := measure(st)
	if err == nil {
		_, err = st.Write(binary.LittleEndian.AppendUint64(nil, rate))
	}
	if err == nil {
		err = st.Close()
	}
	if err != nil {
		r.lane.swarm.log.Debug("swarm: serve probe", "addr", conn.RemoteAddr(), "err", err)
		return
	}
	select {
	case <-conn.Context().Done():
	case <-ctx.Done():
	}
}

// measure echoes, then takes in at most probeMax bytes and rates their later half, by when
// the congestion window has opened.
func measure(st io.ReadWriter) (bytesPerS uint64, err error) {
	var b [probeEcho]byte
	for range probeEchoes {
		if _, err := io.ReadFull(st, b[:]); err != nil {
			return 0, err
		}
		if _, err := st.Write(b[:]); err != nil {
			return 0, err
		}
	}
	block := make([]byte, probeBlock)
	var marks []mark
	total := 0
	for total < probeMax {
		n, err := io.ReadFull(st, block[:min(probeBlock, probeMax-total)])
		total += n
		if n > 0 {
			marks = append(marks, mark{total, time.Now()})
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return 0, err
		}
	}
	return goodput(marks), nil
}

// mark says that so many bytes had arrived at a time.
type mark struct {
	bytes int
	at    time.Time
}

// goodput is the rate in bytes a second over the later half of the bytes, at least 1. Of
// fewer than two marks nothing can be said but that.
func goodput(marks []mark) uint64 {
	if len(marks) < 2 {
		return 1
	}
	end, from := marks[len(marks)-1], marks[0]
	for _, m := range marks[:len(marks)-1] {
		from = m
		if 2*m.bytes >= end.bytes {
			break
		}
	}
	elapsed := max(end.at.Sub(from.at), time.Microsecond)
	return max(uint64(end.bytes-from.bytes)*uint64(time.Second)/uint64(elapsed), 1)
}
