package swarm

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/quic-go/quic-go"

	"pnode/swarm/admission"
)

// hostile makes an attacker of a member, at an address of its own.
func (n *virtualNet) hostile(t *testing.T, to *Swarm) hostile {
	t.Helper()
	return target(t, to, n.Socket(100*virtualLine.BitsPerS))
}

// attacked runs f beside a member, in virtual time, with the net that it is on.
func attacked(t *testing.T, f func(t *testing.T, ctx context.Context, n *virtualNet, o admission.Owner, member *Swarm)) {
	synctest.Test(t, func(t *testing.T) {
		n, o := newVirtualNet(t), testOwner(t)
		cfg := testMember(t, o, testRun)
		cfg.Simulated = n.Host()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		t.Cleanup(cancel)
		f(t, ctx, n, o, start(t, cfg))
	})
}

// joinsSoon wants an honest node to join within a second.
func joinsSoon(t *testing.T, ctx context.Context, n *virtualNet, o admission.Owner, member *Swarm) {
	t.Helper()
	cfg := testMember(t, o, testRun)
	cfg.Simulated = n.Host()
	s, began := start(t, cfg), time.Now()
	err := s.Connect(ctx, member.Addrs()...)
	if took := time.Since(began); err != nil || took > time.Second {
		t.Errorf("an honest node joined after %s: %v", took, err)
	}
}

// counted counts the bytes that its writer takes.
type counted struct {
	io.Writer
	bytes *atomic.Int64
}

func (c counted) Write(b []byte) (int, error) {
	n, err := c.Writer.Write(b)
	c.bytes.Add(int64(n))
	return n, err
}

// 100 unknown peers with unread streams send what small windows hold and no more.
func TestUnreadStreamsOfStrangers(t *testing.T) {
	// Of each: windows of 112 KB, and what 16 senders keep ready.
	const peers, mostBytes = 100, 192 << 10
	attacked(t, func(t *testing.T, ctx context.Context, n *virtualNet, o admission.Owner, member *Swarm) {
		var sent [peers]atomic.Int64
		for i := range peers {
			if i%20 == 0 {
				time.Sleep(time.Second)
			}
			conn, err := n.hostile(t, member).dial(ctx, "libp2p")
			if err != nil {
				continue // no place
			}
			t.Cleanup(func() { conn.CloseWithError(0, "") })
			h := hostile{}
			for range 16 {
				_, err := h.open(ctx, conn, "/pnode/peers/1", func(w io.Writer) { floodBy(counted{w, &sent[i]}, 1<<10) })
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		time.Sleep(2 * time.Second)
		var all int64
		for i := range sent {
			got := sent[i].Load()
			if all += got; got > mostBytes {
				t.Fatalf("a stranger could send %d bytes that nobody reads, want at most %d", got, mostBytes)
			}
		}
		if all == 0 {
			t.Error("nobody sent anything: does the attack work?")
		}
		joinsSoon(t, ctx, n, o, member)
	})
}

// One unknown peer with 64 greetings that never send holds no place of others.
func TestOnePeerHoldsAllGreetings(t *testing.T) {
	attacked(t, func(t *testing.T, ctx context.Context, n *virtualNet, o admission.Owner, member *Swarm) {
		h := n.hostile(t, member)
		conn, err := h.dial(ctx, "libp2p")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.CloseWithError(0, "")
		for range 64 {
			if _, err := h.open(ctx, conn, "/pnode/hello/1", func(io.Writer) {}); err != nil {
				break // cut off
			}
		}
		time.Sleep(time.Second / 2)
		joinsSoon(t, ctx, n, o, member)
	})
}

// 64 peers at one address with greetings that never send hold no place of another address.
func TestOneAddressHoldsAllGreetings(t *testing.T) {
	attacked(t, func(t *testing.T, ctx context.Context, n *virtualNet, o admission.Owner, member *Swarm) {
		h := n.hostile(t, member)
		for range 64 {
			go h.greet(ctx, func(*quic.Stream) {})
		}
		time.Sleep(time.Second)
		joinsSoon(t, ctx, n, o, member)
	})
}

// A greeting that drips is over after 2 seconds.
func TestGreetingThatDrips(t *testing.T) {
	attacked(t, func(t *testing.T, ctx context.Context, n *virtualNet, _ admission.Owner, member *Swarm) {
		h := n.hostile(t, member)
		conn, err := h.dial(ctx, "libp2p")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.CloseWithError(0, "")
		began, over := time.Now(), make(chan time.Time, 1)
		_, err = h.open(ctx, conn, "/pnode/hello/1", func(w io.Writer) {
			drip(w.(*quic.Stream))
			over <- time.Now()
		})
		if err != nil {
			t.Fatal(err)
		}
		if d := (<-over).Sub(began); d < 2*time.Second || d > 3*time.Second {
			t.Errorf("a greeting that drips was over after %s, want 2 s", d)
		}
	})
}

// Of one address 64 connections stay until somebody is admitted, and others get in beside them.
func TestConnectionsOfOneAddress(t *testing.T) {
	const tried, most = 200, 64
	attacked(t, func(t *testing.T, ctx context.Context, n *virtualNet, o admission.Owner, member *Swarm) {
		h := n.hostile(t, member)
		var open atomic.Int64
		for range tried {
			go func() {
				conn, err := h.dial(ctx, "libp2p")
				if err != nil {
					return
				}
				open.Add(1)
				ended(ctx, conn)
				open.Add(-1)
			}()
		}
		time.Sleep(3 * time.Second)
		if got := open.Load(); got == 0 || got > most {
			t.Errorf("one address has %d of %d connections, want 1 to %d", got, tried, most)
		}
		joinsSoon(t, ctx, n, o, member)
	})
}

// Data connections of a peer that is connected and not admitted take no place of a member's, and those of a peer that
// is not connected are closed before anything is read.
func TestDataConnectionsOfStrangers(t *testing.T) {
	attacked(t, func(t *testing.T, ctx context.Context, n *virtualNet, o admission.Owner, member *Swarm) {
		cfg := testMember(t, o, testRun)
		cfg.Simulated = n.Host()
		other := start(t, cfg)
		if err := other.Connect(ctx, member.Addrs()...); err != nil {
			t.Fatal(err)
		}
		h := n.hostile(t, member)
		conn, err := h.dial(ctx, dataALPN)
		if err == nil {
			err = ended(ctx, conn)
		}
		if code := new(quic.ApplicationError); !errors.As(err, &code) || !code.Remote {
			t.Errorf("a stranger's data connection ended with: %v", err)
		}
		key, _, err := crypto.GenerateEd25519Key(nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.dialAs(ctx, key, "libp2p"); err != nil {
			t.Fatal(err)
		}
		for range 70 {
			go func() {
				if conn, err := h.dialAs(ctx, key, dataALPN); err == nil {
					ended(ctx, conn)
				}
			}()
		}
		time.Sleep(time.Second)
		exchangeData(t, ctx, other, member)
	})
}

// A stranger that opens stream after stream is disconnected soon.
func TestStreamsOfAStranger(t *testing.T) {
	const most = 64
	attacked(t, func(t *testing.T, ctx context.Context, n *virtualNet, _ admission.Owner, member *Swarm) {
		h := n.hostile(t, member)
		conn, err := h.dial(ctx, "libp2p")
		if err != nil {
			t.Fatal(err)
		}
		for opened := range 10 * most {
			st, err := h.open(ctx, conn, "/nobody/speaks/this", func(io.Writer) {})
			if err != nil {
				if opened > most {
					t.Errorf("cut off after %d streams, want at most %d", opened, most)
				}
				return
			}
			time.Sleep(3 * virtualLine.Latency)
			st.Close()
		}
		t.Errorf("a stranger opened %d streams", 10*most)
	})
}

// What a stranger says about itself is forgotten when it is gone.
func TestStrangersAreForgotten(t *testing.T) {
	attacked(t, func(t *testing.T, ctx context.Context, n *virtualNet, _ admission.Owner, member *Swarm) {
		x := newStranger(t, n.Host())
		x.connect(t, ctx, member)
		time.Sleep(time.Second)
		book := member.host.Peerstore()
		if len(book.Addrs(x.ID())) == 0 {
			t.Fatal("a stranger's addresses are not known: does identify work?")
		}
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if addrs := book.Addrs(x.ID()); len(addrs) > 0 {
			t.Errorf("addresses of a stranger that has left: %v", addrs)
		}
	})
}

// Members' data connections have wide windows from the start, in both directions: megabytes are under way before
// anything is read.
func TestDataOfMembersHasWideWindows(t *testing.T) {
	o, ctx := testOwner(t), testContext(t)
	var both [2]*Swarm
	for i := range both {
		cfg := testMember(t, o, testRun)
		cfg.Listen = []string{"0.0.0.0:0"}
		if i > 0 {
			cfg.Bootstrap = both[0].Addrs()
		}
		both[i] = start(t, cfg)
	}
	waitMembers(t, ctx, both[0], 1)
	waitMembers(t, ctx, both[1], 1)
	for i, from := range both {
		conn, err := from.Data().Dial(ctx, both[1-i].ID(), "")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(0, "")
		st, err := conn.OpenStream(ctx)
		if err != nil {
			t.Fatal(err)
		}
		deadline, _ := ctx.Deadline()
		if err := st.SetWriteDeadline(deadline); err != nil {
			t.Fatal(err)
		}
		if n, err := st.Write(make([]byte, 2<<20)); err != nil {
			t.Errorf("to member %d: %d bytes were sent before any was read: %v", 1-i, n, err)
		}
	}
}
