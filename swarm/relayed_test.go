package swarm

import (
	"bytes"
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/protocol"

	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/host"
	"pnode/swarm/relay"
	"pnode/swarm/transport"
)

const relayedBytesPerS = 1_000_000

// relayTrio starts three members, of which r relays, and waits until all know what the others speak.
func relayTrio(t *testing.T, ctx context.Context, n *virtualNet, nats bool) (a, b, r *Swarm) {
	t.Helper()
	o := testOwner(t)
	var all []*Swarm
	for i := range 3 {
		cfg := testMember(t, o, testRun)
		cfg.Listen, cfg.Simulated = []string{"0.0.0.0:0"}, n.Host()
		cfg.Simulated.NATs = nats
		if i == 0 {
			cfg.Reach, cfg.RelayBytesPerS = host.ReachPublic, relayedBytesPerS
		} else {
			cfg.Bootstrap = all[0].Addrs()
		}
		all = append(all, start(t, cfg))
	}
	for _, s := range all {
		waitMembers(t, ctx, s, 2)
	}
	time.Sleep(time.Second) // until all have told each other what they speak
	return all[1], all[2], all[0]
}

// relayed calls f in virtual time with three members, of which r relays.
func relayed(t *testing.T, f func(t *testing.T, ctx context.Context, n *virtualNet, a, b, r *Swarm)) {
	synctest.Test(t, func(t *testing.T) {
		n := newVirtualNet(t)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		t.Cleanup(cancel)
		a, b, r := relayTrio(t, ctx, n, true)
		// As on two networks without a way between them: b is not asked to dial a.
		a.relays.Direct = func(plan.PeerID) bool { return false }
		f(t, ctx, n, a, b, r)
	})
}

// dialRelayed opens a connection through the relay, with a stream that the other end has accepted.
func dialRelayed(t *testing.T, ctx context.Context, a, b *Swarm) (from, to transport.Conn, out, in transport.Stream) {
	t.Helper()
	from, err := a.Data().Dial(ctx, b.ID(), plan.Relay)
	if err != nil {
		t.Fatal(err)
	}
	to, p, err := b.Data().Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if p != a.ID() || to.Transport() != plan.Relay || from.Transport() != plan.Relay {
		t.Errorf("a connection of %s over %s and %s", p, from.Transport(), to.Transport())
	}
	if out, err = from.OpenStream(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err = out.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if in, err = to.AcceptStream(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err = io.ReadFull(in, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return from, to, out, in
}

// Data goes through a relay unchanged, at no more than its rate, and a probe measures that.
func TestVirtualRelayedData(t *testing.T) {
	relayed(t, func(t *testing.T, ctx context.Context, _ *virtualNet, a, b, _ *Swarm) {
		from, to, out, in := dialRelayed(t, ctx, a, b)
		defer from.Close(0, "")
		defer to.Close(0, "")
		sent := bytes.Repeat([]byte("0123456789"), 300_000)
		began := time.Now()
		go func() {
			out.Write(sent)
			out.Close()
		}()
		got, err := io.ReadAll(in)
		if err != nil || !bytes.Equal(got, sent) {
			t.Fatalf("%d bytes of %d came: %v", len(got), len(sent), err)
		}
		if took := time.Since(began); took < 2900*time.Millisecond || took > 6*time.Second {
			t.Errorf("3 MB at 1 MB/s took %s", took)
		}
	})
}

// A member that is removed is cut off from what is relayed, at the relay and by the relay.
func TestVirtualRemovedWhileRelayed(t *testing.T) {
	relayed(t, func(t *testing.T, ctx context.Context, _ *virtualNet, a, b, r *Swarm) {
		from, to, _, in := dialRelayed(t, ctx, a, b)
		r.Block(a.ID(), admission.Removed("test"))
		if _, err := in.Read(make([]byte, 1)); err == nil {
			t.Error("bytes of a removed member")
		}
		for _, c := range []transport.Conn{from, to} {
			select {
			case <-c.Context().Done():
			case <-ctx.Done():
				t.Fatal("a relayed connection of a removed member lives")
			}
		}
		if _, err := a.relays.Dial(ctx, b.ID(), dataALPN); err == nil {
			t.Error("a removed member is relayed")
		}
	})
}

// flipping is a relay that changes bytes after some have passed.
type flipping struct {
	net.Conn
	after int
}

func (f *flipping) Write(b []byte) (int, error) {
	b = bytes.Clone(b)
	if f.after -= len(b); f.after < 0 {
		b[len(b)/2] ^= 1
	}
	return f.Conn.Write(b)
}

// A relay that changes bytes is found out: the handshake fails, or the connection ends, and nothing changed is taken.
func TestVirtualRelayThatChangesBytes(t *testing.T) {
	relayed(t, func(t *testing.T, ctx context.Context, _ *virtualNet, a, b, _ *Swarm) {
		honest := a.data.Relay
		for _, after := range []int{0, 100, 100_000} {
			a.data.Relay = func(ctx context.Context, p plan.PeerID) (net.Conn, error) {
				raw, err := honest(ctx, p)
				return &flipping{raw, after}, err
			}
			if after < 1000 {
				if _, err := a.Data().Dial(ctx, b.ID(), plan.Relay); err == nil {
					t.Errorf("a handshake whose bytes are changed after %d succeeds", after)
				}
				continue
			}
			from, _, out, in := dialRelayed(t, ctx, a, b)
			sent := bytes.Repeat([]byte("0123456789"), 100_000)
			go out.Write(sent)
			got, err := io.ReadAll(in)
			if err == nil || len(got) == len(sent) || !bytes.HasPrefix(sent, got) {
				t.Errorf("%d bytes came, error %v", len(got), err)
			}
			from.Close(0, "")
		}
	})
}

// A stranger's questions to a relay are not answered, and its connections not read.
func TestVirtualStrangerAtARelay(t *testing.T) {
	relayed(t, func(t *testing.T, ctx context.Context, n *virtualNet, _, b, r *Swarm) {
		x := newStranger(t, n.Host())
		x.connect(t, ctx, r)
		st, err := x.NewStream(ctx, r.host.ID(), protocol.ID(relay.AskProtocol))
		if err == nil {
			st.Write([]byte{0, 0, 0, 0})
			if answer, _ := io.ReadAll(st); len(answer) > 0 {
				t.Errorf("a stranger is answered: %x", answer)
			}
		}
		// A member that relays is asked by members alone, and the called one answers only for members.
		if _, err := b.relays.Dial(ctx, plan.PeerID(x.ID().String()), dataALPN); err == nil {
			t.Error("a member is relayed to a stranger")
		}
	})
}

// Who does not relay is not asked.
func TestVirtualNoRelay(t *testing.T) {
	relayed(t, func(t *testing.T, ctx context.Context, _ *virtualNet, a, b, r *Swarm) {
		if got := a.relaysTo(b.ID()); len(got) != 1 || got[0] != r.ID() {
			t.Errorf("relays: %v, want %s", got, r.ID())
		}
		if got := a.relaysTo(r.ID()); len(got) != 0 {
			t.Errorf("relays to the relay: %v", got)
		}
	})
}
