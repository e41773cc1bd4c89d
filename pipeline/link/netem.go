package link

import (
	"container/heap"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"
)

// LinkConditions describe one direction of an emulated link. A packet waits in a queue for its turn on
// the line, takes its size over BytesPerS on it, then Delay and a part of Jitter on the way. Packets of
// a link keep their order unless Reorder is set.
type LinkConditions struct {
	// BytesPerS is the line's rate; 0 is without limit.
	BytesPerS int64
	// Delay is one way. Jitter adds an even spread of [0,Jitter).
	Delay, Jitter time.Duration
	// Reorder lets a packet overtake one that Jitter holds up longer.
	Reorder bool
	// LossPerMillion packets are lost on the way, independently of each other.
	LossPerMillion int
	// QueueBytes is how much may wait for a limited line; what comes on top is dropped.
	// 0 is what the line carries in 100 ms, and at least 64 KiB.
	QueueBytes int
}

// LinkCounts count what happened to the packets of one direction.
type LinkCounts struct {
	Packets, Bytes uint64
	// Overflowed packets found the queue full, Lost ones were lost on the way, Cut ones
	// were sent across a cut.
	Overflowed, Lost, Cut uint64
}

type address = netip.AddrPort

func addressOf(a net.Addr) address {
	if udp, ok := a.(*net.UDPAddr); ok {
		return udp.AddrPort()
	}
	return address{}
}

// direction names a link.
type direction struct{ from, to address }

// line is the state of one direction.
type line struct {
	conditions LinkConditions
	cut        bool
	free       time.Time // when the line has sent everything that waits
	last       time.Time // when the newest packet comes out
	random     *rand.Rand
	counts     LinkCounts
}

// netem joins emulated packet connections.
type netem struct {
	seed       uint64
	conditions LinkConditions

	mu    sync.Mutex // guards the rest
	lines map[direction]*line
	conns map[address]*packetConn
}

func newNetem(seed uint64, conditions LinkConditions) *netem {
	return &netem{seed: seed, conditions: conditions, lines: map[direction]*line{}, conns: map[address]*packetConn{}}
}

// address returns the address of the i-th connection, in 10.0.0.0/8.
func (n *netem) address(i int) *net.UDPAddr {
	at := i + 1
	return &net.UDPAddr{IP: net.IPv4(10, 0, byte(at>>8), byte(at)).To4(), Port: 4242}
}

// listen makes the i-th connection.
func (n *netem) listen(i int) *packetConn {
	addr := addressOf(n.address(i))
	c := &packetConn{netem: n, addr: addr}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns[addr] = c
	return c
}

// forget takes a connection off the network.
func (n *netem) forget(addr address) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.conns, addr)
}

// line returns the state of a direction, made on first use. Callers hold mu.
func (n *netem) line(d direction) *line {
	l := n.lines[d]
	if l == nil {
		from, to := d.from.Addr().As4(), d.to.Addr().As4()
		stream := uint64(from[2])<<24 | uint64(from[3])<<16 | uint64(to[2])<<8 | uint64(to[3])
		l = &line{conditions: n.conditions, random: rand.New(rand.NewPCG(n.seed, stream))}
		n.lines[d] = l
	}
	return l
}

func (n *netem) setCut(from, to address, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.line(direction{from, to}).cut = cut
}

func (n *netem) linkCounts(from, to address) LinkCounts {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.line(direction{from, to}).counts
}

// send puts a packet on its way.
func (n *netem) send(d direction, data []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	from, to := n.conns[d.from], n.conns[d.to]
	if from == nil || to == nil {
		return
	}
	due, ok := n.line(d).pass(time.Now(), len(data))
	if !ok {
		return
	}
	to.push(packet[address]{data: append([]byte(nil), data...), other: d.from, due: due})
}

// pass returns the time at which a packet of size bytes, sent now, comes out.
func (l *line) pass(now time.Time, size int) (due time.Time, ok bool) {
	l.counts.Packets++
	l.counts.Bytes += uint64(size)
	if l.cut {
		l.counts.Cut++
		return due, false
	}
	if l.free.Before(now) {
		l.free = now
	}
	if rate := float64(l.conditions.BytesPerS); rate > 0 {
		waiting := l.free.Sub(now).Seconds() * rate
		room := int64(l.conditions.QueueBytes)
		if room <= 0 {
			room = max(64<<10, l.conditions.BytesPerS/10)
		}
		if int64(waiting)+int64(size) > room {
			l.counts.Overflowed++
			return due, false
		}
		l.free = l.free.Add(time.Duration(float64(size) / rate * float64(time.Second)))
	}
	if l.conditions.LossPerMillion > 0 && l.random.IntN(1_000_000) < l.conditions.LossPerMillion {
		l.counts.Lost++
		return due, false
	}
	due = l.free.Add(l.conditions.Delay)
	if l.conditions.Jitter > 0 {
		due = due.Add(time.Duration(l.random.Int64N(int64(l.conditions.Jitter))))
	}
	if due.Before(l.last) && !l.conditions.Reorder {
		due = l.last
	}
	l.last = due
	return due, true
}

// packet is on its way until due.
type packet[A any] struct {
	data  []byte
	other A // the end that it comes from or goes to
	due   time.Time
	turn  uint64 // order among packets due at once
}

// packets are on their way; the one that is due first comes out first. The mutex of what they
// belong to guards them.
type packets[A any] struct {
	heap  packetHeap[A]
	turns uint64
	bytes int
}

// maxOnTheWay bounds the bytes of packets on their way; what comes on top is dropped.
const maxOnTheWay = 64 << 20

// add takes a packet, and reports whether it comes out before all others.
func (q *packets[A]) add(p packet[A]) (first bool) {
	if q.bytes+len(p.data) > maxOnTheWay {
		return false
	}
	q.turns++
	p.turn = q.turns
	q.bytes += len(p.data)
	heap.Push(&q.heap, p)
	return q.heap[0].turn == p.turn
}

// next returns how long it is until the next packet comes out; not ok when there is none.
func (q *packets[A]) next(now time.Time) (wait time.Duration, ok bool) {
	if len(q.heap) == 0 {
		return 0, false
	}
	return q.heap[0].due.Sub(now), true
}

// take removes the packet that comes out next.
func (q *packets[A]) take() packet[A] {
	p := heap.Pop(&q.heap).(packet[A])
	q.bytes -= len(p.data)
	return p
}

// clear drops all.
func (q *packets[A]) clear() { q.heap, q.bytes = nil, 0 }

// packetHeap has the packet that is due first at its top.
type packetHeap[A any] []packet[A]

func (h packetHeap[A]) Len() int { return len(h) }
func (h packetHeap[A]) Less(i, j int) bool {
	if !h[i].due.Equal(h[j].due) {
		return h[i].due.Before(h[j].due)
	}
	return h[i].turn < h[j].turn
}
func (h packetHeap[A]) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *packetHeap[A]) Push(p any)   { *h = append(*h, p.(packet[A])) }
func (h *packetHeap[A]) Pop() any {
	old := *h
	p := old[len(old)-1]
	old[len(old)-1] = packet[A]{}
	*h = old[:len(old)-1]
	return p
}
