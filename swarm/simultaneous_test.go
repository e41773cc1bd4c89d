package swarm

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"

	"github.com/libp2p/go-libp2p/core/network"

	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/neterr"
	"pnode/swarm/streams"
)

const echoProtocol = "/pnode/test/echo"

// serveEcho answers each stream with what comes.
func serveEcho(s *Swarm) {
	s.Handle(echoProtocol, func(_ context.Context, _ plan.PeerID, st streams.Stream) { io.Copy(st, st) })
}

// call wants an echo from one member to another.
func call(t *testing.T, ctx context.Context, from, to *Swarm) {
	t.Helper()
	if err := echo(ctx, from, to); err != nil {
		t.Error(err)
	}
}

// callOnEither wants an echo just after both dialed. A stream may be cut with the connection it was on: a side that
// gives up its own dial does so without a word, though the other sees it done. The connection that stays takes the next.
func callOnEither(t *testing.T, ctx context.Context, from, to *Swarm) {
	t.Helper()
	err := echo(ctx, from, to)
	for neterr.Cut(err) && ctx.Err() == nil {
		err = echo(ctx, from, to)
	}
	if err != nil {
		t.Error(err)
	}
}

// echo sends a byte to a member and waits until it is back.
func echo(ctx context.Context, from, to *Swarm) error {
	st, err := from.Open(ctx, to.ID(), echoProtocol)
	if err != nil {
		return err
	}
	defer st.Close()
	if _, err := st.Write([]byte("x")); err != nil {
		return err
	}
	_, err = io.ReadFull(st, make([]byte, 1))
	return err
}

// connectAtOnce has each of the nodes dial the other at the same time.
func connectAtOnce(t *testing.T, ctx context.Context, a, b *Swarm) {
	t.Helper()
	var both sync.WaitGroup
	for _, pair := range [][2]*Swarm{{a, b}, {b, a}} {
		both.Go(func() {
			if err := pair[0].Connect(ctx, pair[1].Addrs()...); err != nil {
				t.Errorf("connect: %v", err)
			}
		})
	}
	both.Wait()
}

// Two nodes that dial each other at once admit each other, whatever becomes of the two
// connections; also when one was restarted and the other still holds the dead connection.
func TestConnectAtOnce(t *testing.T) {
	rounds := 20
	if testing.Short() {
		rounds = 3
	}
	o := testOwner(t)
	for range rounds {
		t.Run("", func(t *testing.T) {
			ctx := testContext(t)
			a := start(t, testMember(t, o, testRun))
			cfg := testMember(t, o, testRun)
			b := start(t, cfg)
			serveEcho(a)
			serveEcho(b)
			connectAtOnce(t, ctx, a, b)
			callOnEither(t, ctx, a, b)
			callOnEither(t, ctx, b, a)
			b.tasks.Close() // as after a crash: it does nothing more, and a still holds its connection
			t.Cleanup(func() { b.host.Close() })
			again := start(t, cfg)
			serveEcho(again)
			connectAtOnce(t, ctx, a, again)
			waitMembers(t, ctx, a, 1)
			callOnEither(t, ctx, again, a)
		})
	}
}

// The same while connections are closed at random moments, as libp2p closes one of two
// that do the same.
func TestConnectAtOnceWithLosses(t *testing.T) {
	rounds := 20
	if testing.Short() {
		rounds = 3
	}
	o := testOwner(t)
	for range rounds {
		t.Run("", func(t *testing.T) {
			ctx := testContext(t)
			a, b := start(t, testMember(t, o, testRun)), start(t, testMember(t, o, testRun))
			for _, s := range []*Swarm{a, b} {
				closeFirst(s)
			}
			connectAtOnce(t, ctx, a, b)
			waitMembers(t, ctx, a, 1)
			waitMembers(t, ctx, b, 1)
		})
	}
}

// A refusal stays one when both dial at once, and both are told the reason.
func TestRefusalAtOnce(t *testing.T) {
	rounds := 20
	if testing.Short() {
		rounds = 3
	}
	o := testOwner(t)
	for range rounds {
		ctx := testContext(t)
		a, b := start(t, testMember(t, o, testRun)), start(t, testMember(t, o, "anotherrun"))
		var both sync.WaitGroup
		for _, pair := range [][2]*Swarm{{a, b}, {b, a}} {
			both.Go(func() {
				if err := pair[0].Connect(ctx, pair[1].Addrs()...); !errors.Is(err, admission.ErrWrongRun) {
					t.Errorf("connect to another run: %v", err)
				}
			})
		}
		both.Wait()
		if len(a.Members())+len(b.Members()) != 0 {
			t.Error("a peer of another run is a member")
		}
	}
}

// closeFirst closes the first connection of a node as soon as it is there.
func closeFirst(s *Swarm) {
	var once sync.Once
	s.host.Network().Notify(&network.NotifyBundle{ConnectedF: func(_ network.Network, c network.Conn) {
		once.Do(func() { go c.Close() })
	}})
}
