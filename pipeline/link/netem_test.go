package link

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"pnode/planner/plan"
)

// pair is two connections on the air.
func pair(shape LinkConditions) (em *Emulated, from, to *packetConn) {
	em = &Emulated{
		opt:   EmulatedOptions{Seed: 7, Conditions: shape},
		lines: map[direction]*line{}, conns: map[netip.AddrPort]*packetConn{},
	}
	return em, em.listen(0), em.listen(1)
}

// cut drops every packet in one direction until it is undone.
func (em *Emulated) cut(from, to netip.AddrPort, cut bool) {
	em.change(from, to, func(l *line) { l.cut = cut })
}

// Cut drops every packet between two peers, in both directions, until it is undone.
func (em *Emulated) Cut(a, b plan.PeerID, cut bool) {
	em.cut(em.addr(a), em.addr(b), cut)
	em.cut(em.addr(b), em.addr(a), cut)
}

// Kill takes a peer off the network for good, without a word to the others: all packets from and to
// it are dropped.
func (em *Emulated) Kill(id plan.PeerID) { em.forget(em.addr(id)) }

func sendPackets(t *testing.T, from, to *packetConn, n, size int) {
	t.Helper()
	for i := range n {
		b := make([]byte, size)
		b[0] = byte(i)
		if _, err := from.WriteTo(b, to.LocalAddr()); err != nil {
			t.Fatal(err)
		}
	}
}

// arrivals reads until nothing has come for a second, and gives what came when.
func arrivals(t *testing.T, c *packetConn) (numbers []byte, when []time.Duration) {
	t.Helper()
	begin, b := time.Now(), make([]byte, 1500)
	for {
		c.SetReadDeadline(time.Now().Add(time.Second))
		n, _, err := c.ReadFrom(b)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return numbers, when
		}
		if err != nil || n < 1 {
			t.Fatal(n, err)
		}
		numbers, when = append(numbers, b[0]), append(when, time.Since(begin))
	}
}

func TestAirDelayAndRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, from, to := pair(LinkConditions{BytesPerS: 100_000, Delay: 30 * time.Millisecond})
		sendPackets(t, from, to, 5, 1000)
		numbers, when := arrivals(t, to)
		if len(numbers) != 5 {
			t.Fatalf("%d packets came", len(numbers))
		}
		for i, d := range when {
			if want := time.Duration(i+1)*10*time.Millisecond + 30*time.Millisecond; d != want || numbers[i] != byte(i) {
				t.Errorf("packet %d came %d-th after %v, want %v", numbers[i], i, d, want)
			}
		}
	})
}

// TestUplinkIsShared by all lines of a sender: packets to a second peer come as much later as those to the first one take.
func TestUplinkIsShared(t *testing.T) {
	now := time.Unix(0, 0)
	up := &uplink{bytesPerS: 2000}
	a, b := newLine(1, 1), newLine(1, 2)
	for _, l := range []*line{a, b} {
		l.conditions, l.uplink = LinkConditions{BytesPerS: 1000, Delay: time.Second}, up
	}
	for i, c := range []struct {
		line *line
		want time.Duration
	}{{a, 2 * time.Second}, {b, 2500 * time.Millisecond}, {a, 3 * time.Second}, {b, 3500 * time.Millisecond}} {
		if due, ok := c.line.pass(now, 1000); !ok || due.Sub(now) != c.want {
			t.Errorf("packet %d comes after %v, want %v", i, due.Sub(now), c.want)
		}
	}
}

func TestAirQueueDropsTheTail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, from, to := pair(LinkConditions{BytesPerS: 100_000, QueueBytes: 3000})
		sendPackets(t, from, to, 10, 1000)
		numbers, _ := arrivals(t, to)
		if string(numbers) != "\x00\x01\x02" {
			t.Errorf("packets %v came", numbers)
		}
		var n LinkCounts
		a.change(from.addr, to.addr, func(l *line) { n = l.counts })
		if n.Overflowed != 7 || n.Packets != 10 || n.Bytes != 10_000 {
			t.Errorf("counts are %+v", n)
		}
	})
}

func TestAirLossIsSeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var first []byte
		for range 2 {
			_, from, to := pair(LinkConditions{LossPerMillion: 200_000, Jitter: time.Millisecond})
			sendPackets(t, from, to, 250, 10)
			numbers, _ := arrivals(t, to)
			if n := len(numbers); n < 150 || n > 240 {
				t.Fatalf("%d of 250 packets came at a loss of 20%%", n)
			}
			for i := 1; i < len(numbers); i++ {
				if numbers[i] <= numbers[i-1] {
					t.Fatal("jitter changed the order")
				}
			}
			if first == nil {
				first = numbers
			} else if string(numbers) != string(first) {
				t.Error("the same seed lost other packets")
			}
		}
	})
}

func TestAirCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, from, to := pair(LinkConditions{})
		a.cut(from.addr, to.addr, true)
		sendPackets(t, from, to, 2, 10)
		sendPackets(t, to, from, 1, 10)
		if numbers, _ := arrivals(t, to); len(numbers) != 0 {
			t.Errorf("%d packets crossed the cut", len(numbers))
		}
		if numbers, _ := arrivals(t, from); len(numbers) != 1 {
			t.Error("the other direction is cut too")
		}
		a.cut(from.addr, to.addr, false)
		sendPackets(t, from, to, 1, 10)
		if numbers, _ := arrivals(t, to); len(numbers) != 1 {
			t.Error("the cut stays")
		}
	})
}

func TestPacketConnClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, from, to := pair(LinkConditions{})
		read := make(chan error)
		go func() {
			_, _, err := to.ReadFrom(make([]byte, 10))
			read <- err
		}()
		synctest.Wait()
		to.Close()
		if err := <-read; !errors.Is(err, net.ErrClosed) {
			t.Errorf("read: %v", err)
		}
		if _, err := to.WriteTo([]byte{1}, from.LocalAddr()); !errors.Is(err, net.ErrClosed) {
			t.Errorf("write: %v", err)
		}
		sendPackets(t, from, to, 1, 10) // to nobody
	})
}

// TestEmulatedRealTime: the same network on the real clock.
func TestEmulatedRealTime(t *testing.T) {
	c, _ := emulated(t, 2, LinkConditions{Delay: 2 * time.Millisecond, BytesPerS: 50_000_000}, Options{PeerTimeout: time.Minute})
	t.Cleanup(c.close)
	everybody(t, c, c.sessions(1), 2, 50_000)
}

func TestEmulatedIdentityIsVerified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := emulated(t, 2, LinkConditions{}, Options{})
		defer c.close()
		wrong := plan.PeerID("somebody else")
		c.networks[0].book[wrong] = c.networks[1].conn.LocalAddr()
		if conn, err := c.networks[0].Dial(context.Background(), wrong, plan.QUIC); err == nil {
			t.Errorf("connected to %v under a wrong identity", conn.RemoteAddr())
		}
	})
}

func TestEmulatedIDsAreSeeded(t *testing.T) {
	ids := func(seed uint64) []plan.PeerID {
		em, err := NewEmulated(EmulatedOptions{Peers: 3, Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		defer em.Close()
		return em.Peers()
	}
	a, b, other := ids(1), ids(1), ids(2)
	if a[0] != b[0] || a[2] != b[2] || a[0] == other[0] || a[0] >= a[1] || a[1] >= a[2] {
		t.Errorf("IDs are %v, %v and, of another seed, %v", a, b, other)
	}
}

func TestNewEmulatedRefusesCount(t *testing.T) {
	if _, err := NewEmulated(EmulatedOptions{}); err == nil {
		t.Error("no peers are accepted")
	}
}
