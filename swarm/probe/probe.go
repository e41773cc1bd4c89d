package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"net"
	"slices"
	"sync"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/alpn"
	"pnode/swarm/tasks"
	"pnode/swarm/transport"
)

// ErrBusy is returned while the other side measures a link already; try again later.
var ErrBusy = errors.New("peer is busy with another link probe")

// A probe is one stream on a connection of its own: 8 echoes of 8 bytes give the round
// trip, then the prober sends for a second at most, and the other side answers with the
// rate it received at.
const (
	// ALPN names the protocol.
	ALPN         = "pnode-probe/1"
	probeEchoes  = 8
	probeEcho    = 8
	probeMax     = 16 << 20
	probeBlock   = 16 << 10
	probeTime    = time.Second
	probeMin     = 128 << 10 // sent however long it takes, within probeLimit
	probeLimit   = 10 * time.Second
	probesServed = 4               // at once: of two peers, each over QUIC and TCP
	probePause   = 3 * time.Second // between two of one peer over one transport
	// heardTime is how long the rate at which a probe of a peer came in counts.
	heardTime = 30 * time.Second
	// dialPatience is how much longer than the others a transport may take to connect.
	dialPatience = time.Second
	codeProbe    = transport.Code(4)
)

// Prober measures links and lets others measure theirs to this node.
type Prober struct {
	transport *alpn.Transport
	tasks     *tasks.Group
	log       *slog.Logger
	room      chan struct{}
	// mu guards the rest: when each peer was served over each transport, how fast its probes came in, and with which peers
	// this node has compared transports itself.
	mu       sync.Mutex
	last     map[way]time.Time
	heard    map[way]heard
	compared map[plan.PeerID]bool
}

// heard holds what a probe of a peer showed, and when.
type heard struct {
	bytesPerS int64
	at        time.Time
}

// way is a transport to a peer.
type way struct {
	peer plan.PeerID
	over plan.Transport
}

// New answers probes that come by the transport, until the swarm closes.
func New(transport *alpn.Transport, group *tasks.Group, log *slog.Logger) *Prober {
	p := &Prober{
		transport: transport, tasks: group, log: log,
		room: make(chan struct{}, probesServed), last: map[way]time.Time{}, heard: map[way]heard{}, compared: map[plan.PeerID]bool{},
	}
	group.Run(p.serve)
	return p
}

// Probe measures the link from this node to a member: the round trip, its jitter, and the rate at which the
// member received, over at most 16 MiB or about a second. It measures QUIC and TCP, where both work, and over something
// else only where neither does. The better one is what the link has, and what its connections try first from then on: a
// worse transport has to be 10% faster. The member serves four probes at once, and one of a peer over each transport in 3
// seconds; beyond that the error wraps ErrBusy, also where another transport was measured.
func (r *Prober) Probe(ctx context.Context, p plan.PeerID) (plan.LinkProfile, error) {
	ctx, cancel := context.WithTimeout(ctx, admission.TimeLimit+probeLimit)
	defer cancel()
	profile, err := r.probe(ctx, p)
	if err != nil {
		return plan.LinkProfile{}, fmt.Errorf("swarm: probe %s: %w", p, err)
	}
	return profile, nil
}

func (r *Prober) probe(ctx context.Context, p plan.PeerID) (plan.LinkProfile, error) {
	if _, err := r.transport.Reach(ctx, p); err != nil {
		return plan.LinkProfile{}, err
	}
	ways := r.transport.Transports(p)
	if len(ways) == 0 {
		return plan.LinkProfile{}, errors.New("no address of the peer is known")
	}
	if working := slices.DeleteFunc(slices.Clone(ways), func(over plan.Transport) bool { return r.transport.Choice.FailedLately(p, over) }); len(working) > 0 {
		ways = working
	}
	var direct, others []plan.Transport
	for _, over := range plan.Transports {
		switch {
		case !slices.Contains(ways, over):
		case over == plan.QUIC || over == plan.TCP:
			direct = append(direct, over)
		default:
			others = append(others, over)
		}
	}
	measured, errs := r.probeAll(ctx, p, direct)
	for len(measured) == 0 && len(others) > 0 && ctx.Err() == nil && !errors.Is(errors.Join(errs...), ErrBusy) {
		more, err := r.probeAll(ctx, p, others[:1])
		measured, errs, others = more, append(errs, err...), others[1:]
	}
	if busy := errors.Is(errors.Join(errs...), ErrBusy); busy || len(measured) == 0 { // the other one alone is no choice
		return plan.LinkProfile{}, errors.Join(errs...)
	}
	over, why := choose(measured)
	r.mu.Lock()
	r.compared[p] = over != ""
	r.transport.Choice.Prefer(p, over, why)
	r.mu.Unlock()
	for _, l := range measured {
		if over == "" || l.Transport == over {
			return l, nil
		}
	}
	panic("probe: chose what was not measured")
}

// choose returns the transport to use, the better one unless a worse one is 10% faster, with the reason that people read.
// It is empty where one transport alone was measured.
func choose(measured []plan.LinkProfile) (over plan.Transport, why string) {
	if len(measured) < 2 {
		return "", ""
	}
	sorted := slices.Clone(measured)
	slices.SortFunc(sorted, func(a, b plan.LinkProfile) int {
		return slices.Index(plan.Transports, a.Transport) - slices.Index(plan.Transports, b.Transport)
	})
	best, second := sorted[0], plan.LinkProfile{}
	for _, l := range sorted[1:] {
		if l.BytesPerS > best.BytesPerS+best.BytesPerS/10 {
			best, l = l, best
		}
		if l.BytesPerS > second.BytesPerS {
			second = l
		}
	}
	return best.Transport, fmt.Sprintf("%s against %s over %s", plan.Bandwidth(best.BytesPerS), plan.Bandwidth(second.BytesPerS), second.Transport)
}

// dialed is a connection for a probe, or why there is none.
type dialed struct {
	over plan.Transport
	conn transport.Conn
	err  error
}

// outcome holds what a probe over one transport found, or why there is nothing.
type outcome struct {
	link plan.LinkProfile
	err  error
}

// probeAll measures a peer over some transports: their round trips at the same time, their rates one after the other. One that
// has not answered a second after the others are measured is left.
func (r *Prober) probeAll(ctx context.Context, p plan.PeerID, ways []plan.Transport) (all []plan.LinkProfile, errs []error) {
	dials, results, waiting, measuring := make(chan dialed), make(chan outcome, len(ways)), map[plan.Transport]bool{}, 0
	var line sync.RWMutex // shared by round trips, owned by a rate
	over := make(chan struct{})
	defer close(over)
	for _, way := range ways {
		waiting[way] = r.tasks.Run(func(tasks context.Context) { // goes on after the probe: what it finds counts for the next
			conn, err := r.transport.Dial(tasks, p, way)
			select {
			case dials <- dialed{way, conn, err}:
			case <-over:
				if conn != nil {
					conn.Close(0, "")
				}
			}
		})
		if !waiting[way] {
			return nil, []error{net.ErrClosed}
		}
	}
	for len(waiting) > 0 || measuring > 0 {
		var slow <-chan time.Time
		if len(all) > 0 && measuring == 0 {
			slow = time.After(dialPatience)
		}
		select {
		case d := <-dials:
			if delete(waiting, d.over); d.err != nil {
				errs = append(errs, d.err)
				continue
			}
			begun := r.tasks.Run(func(context.Context) {
				l, err := r.measure(ctx, p, d.conn, &line)
				results <- outcome{l, err}
			})
			if !begun {
				d.conn.Close(0, "")
				return nil, []error{net.ErrClosed}
			}
			measuring++
		case m := <-results:
			if measuring--; m.err != nil {
				errs = append(errs, m.err)
				continue
			}
			all = append(all, m.link)
		case <-slow:
			for way := range waiting {
				r.transport.Choice.Slow(p, way)
			}
			return all, errs
		case <-ctx.Done():
			return all, append(errs, ctx.Err())
		}
	}
	return all, errs
}

// measure makes a probe on a connection, and closes it.
func (r *Prober) measure(ctx context.Context, p plan.PeerID, conn transport.Conn, line *sync.RWMutex) (plan.LinkProfile, error) {
	defer conn.Close(0, "")
	stop := context.AfterFunc(ctx, func() { conn.Close(0, "") })
	defer stop()
	st, err := conn.OpenStream(ctx)
	if err != nil {
		return plan.LinkProfile{}, probeError(ctx, err)
	}
	line.RLock()
	trips, err := echo(st)
	line.RUnlock()
	if err != nil {
		return plan.LinkProfile{}, probeError(ctx, err)
	}
	line.Lock()
	bytesPerS, err := push(st)
	line.Unlock()
	if err != nil {
		return plan.LinkProfile{}, probeError(ctx, err)
	}
	rtt := slices.Min(trips[:])
	var over time.Duration // all round trips beyond the least
	for _, t := range trips {
		over += t - rtt
	}
	return plan.LinkProfile{Peer: p, Transport: conn.Transport(), RTTNanos: int64(rtt), BytesPerS: bytesPerS, JitterNanos: int64(over / probeEchoes)}, nil
}

// probeError returns the sentinel of the other side's refusal, or the end of the caller's context.
func probeError(ctx context.Context, err error) error {
	closed, ok := transport.ClosedBy(err)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case ok && (closed.Code == codeProbe || closed.Code == transport.CodeBusy):
		return ErrBusy
	case ok && closed.Code == transport.CodeNotMember:
		return admission.ErrNotMember
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

// push sends what the probe may send, and returns the rate in bytes a second at which it arrived.
func push(st transport.Stream) (bytesPerS int64, err error) {
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
		return 0, fmt.Errorf("%w: rate of %d bytes a second", admission.ErrMalformed, rate)
	}
	return int64(rate), nil
}

// serve answers probes until the swarm closes.
func (r *Prober) serve(ctx context.Context) {
	for {
		conn, p, err := r.transport.Accept(ctx)
		if err != nil {
			return
		}
		if !r.allow(way{p, conn.Transport()}, time.Now()) {
			// One that does not read would hold up the others.
			r.tasks.Run(func(context.Context) { conn.Close(codeProbe, "busy") })
			continue
		}
		r.tasks.Run(func(ctx context.Context) {
			defer func() { <-r.room }()
			r.answer(ctx, conn, p)
		})
	}
}

// allow takes a place for one more probe by a way, and reports whether there was one.
func (r *Prober) allow(by way, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.last[by]) < probePause {
		return false
	}
	select {
	case r.room <- struct{}{}:
	default:
		return false
	}
	for w, at := range r.last {
		if now.Sub(at) >= probePause {
			delete(r.last, w)
		}
	}
	r.last[by] = now
	return true
}

// answer serves one probe. The prober closes the connection when it has its answer.
func (r *Prober) answer(ctx context.Context, conn transport.Conn, p plan.PeerID) {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	defer conn.Close(codeProbe, "probe over")
	st, err := conn.AcceptStream(ctx)
	if err != nil {
		return
	}
	if err := st.SetDeadline(time.Now().Add(probeLimit)); err != nil {
		return
	}
	rate, err := measure(st)
	if err == nil {
		r.hear(way{p, conn.Transport()}, int64(min(rate, math.MaxInt64)), time.Now())
		_, err = st.Write(binary.LittleEndian.AppendUint64(nil, rate))
	}
	if err == nil {
		err = st.Close()
	}
	if err != nil {
		r.log.Debug("swarm: serve probe", "addr", conn.RemoteAddr(), "err", err)
		return
	}
	select {
	case <-conn.Context().Done():
	case <-ctx.Done():
	}
}

// hear notes how fast a probe came in. One end alone measures a link: where a peer's probes have come over two transports,
// this node prefers the better one as well, until it has compared them itself.
func (r *Prober) hear(by way, bytesPerS int64, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.heard, func(_ way, h heard) bool { return now.Sub(h.at) > heardTime })
	r.heard[by] = heard{bytesPerS, now}
	var measured []plan.LinkProfile
	for _, over := range plan.Transports {
		if h, ok := r.heard[way{by.peer, over}]; ok {
			measured = append(measured, plan.LinkProfile{Transport: over, BytesPerS: h.bytesPerS})
		}
	}
	if over, why := choose(measured); over != "" && !r.compared[by.peer] {
		r.transport.Choice.Prefer(by.peer, over, why+", as the other end measured")
	}
}

// measure echoes, then receives at most probeMax bytes and returns the rate of their later half, by when the
// congestion window has opened.
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

// burstPart is the part of the later half's time within which bytes that a lost packet held up are taken to come.
const burstPart = 32

// goodput returns the rate in bytes a second over the later half of the bytes: at least 1, and 1 for fewer than
// two marks. What comes after a lost packet waits for it and is then read all at once. Where the half falls into such a
// burst, the rate is that of the bytes after it.
func goodput(marks []mark) uint64 {
	if len(marks) < 2 {
		return 1
	}
	end, from := marks[len(marks)-1], marks[0]
	var until time.Time // the end of a burst, once half of the bytes have come
	for _, m := range marks[:len(marks)-1] {
		if !until.IsZero() && m.at.After(until) {
			break
		}
		if from = m; until.IsZero() && 2*m.bytes >= end.bytes {
			until = m.at.Add(end.at.Sub(m.at) / burstPart)
		}
	}
	elapsed := max(end.at.Sub(from.at), time.Microsecond)
	return max(uint64(end.bytes-from.bytes)*uint64(time.Second)/uint64(elapsed), 1)
}
