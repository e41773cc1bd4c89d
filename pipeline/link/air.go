package link

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Shape is one direction of an emulated link. A packet waits in a queue for its turn on
// the line, takes its size over BytesPerS on it, then Delay and a part of Jitter on the
// way. Packets of a link keep their order unless Reorder is set.
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

func (s LinkConditions) queueBytes() int64 {
	if s.QueueBytes > 0 {
		return int64(s.QueueBytes)
	}
	return max(64<<10, s.BytesPerS/10)
}

// LinkCounts is what happened to the packets of one direction.
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

// direction is a link's name.
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

// air joins emulated packet connections.
type netem struct {
	seed       uint64
	conditions LinkConditions

	mu    sync.Mutex // guards the rest
	lines map[direction]*line
	conns map[address]*packetConn
}

func newNetem(seed uint64, shape LinkConditions) *netem {
	return &netem{seed: seed, conditions: shape, lines: map[direction]*line{}, conns: map[address]*packetConn{}}
}

// address is that of the i-th connection, in 10.0.0.0/8.
func (a *netem) address(i int) *net.UDPAddr {
	n := i + 1
	return &net.UDPAddr{IP: net.IPv4(10, 0, byte(n>>8), byte(n)).To4(), Port: 4242}
}

// listen makes the i-th connection.
func (a *netem) listen(i int) *packetConn {
	addr := addressOf(a.address(i))
	c := newPacketConn(a, addr)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.conns[addr] = c
	return c
}

// forget takes a connection off the air.
func (a *netem) forget(addr address) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.conns, addr)
}

// line gives the state of a direction, made on first use. Callers hold mu.
func (a *netem) line(d direction) *line {
	l := a.lines[d]
	if l == nil {
		from, to := d.from.Addr().As4(), d.to.Addr().As4()
		stream := uint64(from[2])<<24 | uint64(from[3])<<16 | uint64(to[2])<<8 | uint64(to[3])
		l = &line{conditions: a.conditions, random: rand.New(rand.NewPCG(a.seed, stream))}
		a.lines[d] = l
	}
	return l
}

func (a *netem) setConditions(from, to address, s LinkConditions) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.line(direction{from, to}).conditions = s
}

func (a *netem) setCut(from, to address, cut bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.line(direction{from, to}).cut = cut
}

func (a *netem) linkCounts(from, to address) LinkCounts {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.line(direction{from, to}).counts
}

// send puts a packet on its way.
func (a *netem) send(d direction, data []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	from, to := a.conns[d.from], a.conns[d.to]
	if from == nil || to == nil {
		return
	}
	due, ok := a.line(d).pass(time.Now(), len(data))
	if !ok {
		return
	}
	to.push(packet[address]{data: append([]byte(nil), data...), other: d.from, due: due})
}

// pass gives the time at which a packet of size bytes, sent now, comes out.
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
		if int64(waiting)+int64(size) > l.conditions.queueBytes() {
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
