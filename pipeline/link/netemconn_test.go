package link

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// pipe is a socket without a network: what is written to it can be taken from sent.
type pipe struct {
	net.PacketConn
	sent chan arrived
}

type arrived struct {
	number uint32
	to     netip.AddrPort
	at     time.Time
}

func newPipe() *pipe { return &pipe{sent: make(chan arrived, 10_000)} }

func (p *pipe) WriteTo(b []byte, to net.Addr) (int, error) {
	p.sent <- arrived{binary.LittleEndian.Uint32(b), addressOf(to), time.Now()}
	return len(b), nil
}

func (p *pipe) Close() error { return nil }

func packetOf(number, size int) []byte {
	b := make([]byte, size)
	binary.LittleEndian.PutUint32(b, uint32(number))
	return b
}

var (
	near = net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:1"))
	far  = net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:2"))
)

// TestNetemLinksAreApart: each address has its own line, packets of one keep their order
// and follow each other at the line's rate.
func TestNetemLinksAreApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newPipe()
		conn := NewNetemConn(out, NetemOptions{
			Conditions: LinkConditions{Delay: 10 * time.Millisecond},
			ByAddress:  map[netip.AddrPort][]TimedConditions{far.AddrPort(): {{LinkConditions: LinkConditions{BytesPerS: 100_000, Delay: 50 * time.Millisecond, QueueBytes: 5000}}}},
		})
		defer conn.Close()
		begin := time.Now()
		for i := range 3 {
			for _, to := range []net.Addr{far, near} {
				if n, err := conn.WriteTo(packetOf(i, 1000), to); n != 1000 || err != nil {
					t.Fatal(n, err)
				}
			}
		}
		time.Sleep(time.Second)
		if got := len(out.sent); got != 6 {
			t.Fatalf("%d packets came out, want 6", got)
		}
		next := map[netip.AddrPort]uint32{}
		for range 6 {
			p := <-out.sent
			want := 10 * time.Millisecond
			if p.to == far.AddrPort() {
				want = 50*time.Millisecond + time.Duration(p.number+1)*10*time.Millisecond
			}
			if d := p.at.Sub(begin); d != want {
				t.Errorf("packet %d to %v came out after %v, want %v", p.number, p.to, d, want)
			}
			if p.number != next[p.to] {
				t.Errorf("packet %d to %v out of turn", p.number, p.to)
			}
			next[p.to]++
		}
	})
}

// TestNetemLinksChange: a link has the conditions whose time has come.
func TestNetemLinksChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newPipe()
		conn := NewNetemConn(out, NetemOptions{
			Conditions: LinkConditions{Delay: time.Millisecond},
			ByAddress: map[netip.AddrPort][]TimedConditions{far.AddrPort(): {
				{After: time.Second, LinkConditions: LinkConditions{Delay: 60 * time.Millisecond}},
				{After: 2 * time.Second, LinkConditions: LinkConditions{LossPerMillion: 1_000_000}},
				{After: 3 * time.Second, LinkConditions: LinkConditions{Delay: 2 * time.Millisecond}},
			}},
		})
		defer conn.Close()
		for i, want := range []time.Duration{time.Millisecond, 60 * time.Millisecond, 0, 2 * time.Millisecond} {
			begin := time.Now()
			if _, err := conn.WriteTo(packetOf(i, 100), far); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			switch got := len(out.sent); {
			case got == 0 && want == 0:
			case got != 1 || want == 0:
				t.Errorf("after %d s: %d packets came out", i, got)
			default:
				if d := (<-out.sent).at.Sub(begin); d != want {
					t.Errorf("after %d s a packet took %v, want %v", i, d, want)
				}
			}
		}
	})
}

// TestNetemQueueDropsItsTail: what does not fit into the queue is dropped without an error,
// and the rate is that of the line.
func TestNetemQueueDropsItsTail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newPipe()
		conn := NewNetemConn(out, NetemOptions{Conditions: LinkConditions{BytesPerS: 100_000, QueueBytes: 5000}})
		defer conn.Close()
		for i := range 20 {
			if _, err := conn.WriteTo(packetOf(i, 1000), near); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		if got := len(out.sent); got != 5 {
			t.Errorf("%d packets of 1000 bytes came through a queue of 5000", got)
		}
	})
}

// TestNetemLosesBySeed: about the share is lost, the same packets for the same seed.
func TestNetemLosesBySeed(t *testing.T) {
	run := func(seed uint64) (numbers []uint32) {
		synctest.Test(t, func(t *testing.T) {
			out := newPipe()
			conn := NewNetemConn(out, NetemOptions{Seed: seed, Conditions: LinkConditions{LossPerMillion: 100_000, Jitter: time.Millisecond}})
			defer conn.Close()
			for i := range 2000 {
				if _, err := conn.WriteTo(packetOf(i, 4), near); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Second)
			for range len(out.sent) {
				numbers = append(numbers, (<-out.sent).number)
			}
		})
		return numbers
	}
	a, b, c := run(1), run(1), run(2)
	if len(a) < 1740 || len(a) > 1860 { // 4.5 standard deviations
		t.Errorf("%d of 2000 came through a loss of 10%%", len(a))
	}
	if !slices.Equal(a, b) || slices.Equal(a, c) {
		t.Error("losses do not follow the seed")
	}
}

// TestNetemSocket works as the socket that it wraps does.
func TestNetemSocket(t *testing.T) {
	listen := func() net.PacketConn {
		conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	a, b := NewNetemConn(listen(), NetemOptions{Conditions: LinkConditions{Delay: 20 * time.Millisecond}}), listen()
	defer b.Close()
	begin := time.Now()
	if _, err := a.WriteTo(packetOf(7, 4), b.LocalAddr()); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 10)
	n, from, err := b.ReadFrom(got)
	if err != nil || n != 4 || got[0] != 7 || addressOf(from) != addressOf(a.LocalAddr()) {
		t.Errorf("%d bytes %v from %v: %v", n, got, from, err)
	}
	if d := time.Since(begin); d < 20*time.Millisecond {
		t.Errorf("came after %v, before its delay", d)
	}
	if err := a.SetReadDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.ReadFrom(got); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read past the deadline: %v", err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.WriteTo(got, b.LocalAddr()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("write after Close: %v", err)
	}
}
