package swarm

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	ma "github.com/multiformats/go-multiaddr"

	"pnode/pipeline/link"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
	"pnode/swarm/virtual"
)

// oneWay is two members that send each other a message every 100 ms over a link, and a third that relays. The line from
// the first to the second may be dead while the other direction works.
type oneWay struct {
	dead     atomic.Bool
	swarms   []*Swarm
	sessions []*link.Session
}

func newOneWay(t *testing.T, ctx context.Context) *oneWay {
	t.Helper()
	n, w := newVirtualNet(t), &oneWay{}
	n.Loses = func(from, to netip.Addr, _ []byte) bool {
		return w.dead.Load() && from == virtual.Addr(1) && to == virtual.Addr(2)
	}
	first, second, _ := relayTrio(t, ctx, n, false)
	w.swarms = []*Swarm{first, second}
	running, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	for _, s := range w.swarms {
		e := link.NewEndpoint(s.Data(), link.Options{Log: testLogger(t)})
		work.Go(func() {
			if err := e.Run(running); err != nil {
				t.Error(err)
			}
		})
		w.sessions = append(w.sessions, e.Session(1, []plan.PeerID{w.swarms[0].ID(), w.swarms[1].ID()}))
	}
	t.Cleanup(func() { stop(); work.Wait() })
	return w
}

// exchange sends for a time in both directions and returns the longest wait for a message at each end.
func (w *oneWay) exchange(t *testing.T, ctx context.Context, d time.Duration) (longest [2]time.Duration) {
	t.Helper()
	var work sync.WaitGroup
	for i := range 2 {
		me, other := w.sessions[i], w.swarms[1-i].ID()
		tag := func(n int) wire.Tag { return wire.Tag{Kind: wire.Activation, Generation: 1, Step: plan.Step(n)} }
		messages := int(d / (100 * time.Millisecond))
		work.Go(func() {
			for n := range messages {
				if err := me.Send(ctx, other, wire.Frame{Tag: tag(n), Payload: make([]byte, 1000)}); err != nil {
					t.Errorf("send %d from %d: %v", n, i, err)
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
		})
		work.Go(func() {
			last := time.Now()
			for n := range messages {
				if _, err := me.Receive(ctx, other, tag(n)); err != nil {
					if !errors.Is(err, net.ErrClosed) {
						t.Errorf("receive %d at %d: %v", n, i, err)
					}
					longest[i] = max(longest[i], d)
					return
				}
				longest[i] = max(longest[i], time.Since(last))
				last = time.Now()
			}
		})
	}
	work.Wait()
	return longest
}

// TestVirtualOneWayLink: a link that is dead in one direction for 25 s goes on through the relay.
func TestVirtualOneWayLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		t.Cleanup(cancel)
		w := newOneWay(t, ctx)
		time.AfterFunc(5*time.Second, func() { w.dead.Store(true) })
		time.AfterFunc(30*time.Second, func() { w.dead.Store(false) })
		longest := w.exchange(t, ctx, 40*time.Second)
		t.Logf("the longest wait for a message at either end: %v", longest)
		for i, d := range longest {
			if d > 6*time.Second {
				t.Errorf("end %d waited %v for a message", i, d)
			}
			select {
			case <-w.sessions[i].Lost():
				t.Errorf("end %d lost its peer", i)
			default:
			}
		}
	})
}

// TestVirtualOneWayQuestions: who does not get to the first member of a run any more, which has dialed nobody, asks it through the
// third one while that lasts, and directly again after it.
func TestVirtualOneWayQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		t.Cleanup(cancel)
		n, dead := newVirtualNet(t), atomic.Bool{}
		n.Loses = func(from, to netip.Addr, _ []byte) bool {
			return dead.Load() && from == virtual.Addr(2) && to == virtual.Addr(0)
		}
		o := testOwner(t)
		var all []*Swarm
		for i := range 3 {
			cfg := testMember(t, o, testRun)
			cfg.Listen, cfg.Simulated, cfg.RelayBytesPerS = []string{"0.0.0.0:0"}, n.Host(), relayedBytesPerS
			cfg.Simulated.NATs = true
			if i > 0 {
				cfg.Bootstrap = all[0].Addrs()
			}
			all = append(all, start(t, cfg))
		}
		first, third := all[0], all[2]
		serveEcho(first)
		for _, s := range all {
			waitMembers(t, ctx, s, 2)
		}
		through := "/p2p/" + string(all[1].ID()) + "/p2p-circuit"
		known := func(a ma.Multiaddr) bool { return strings.Contains(a.String(), through) }
		for !slices.ContainsFunc(third.host.Peerstore().Addrs(first.host.ID()), known) {
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
				t.Fatal("the third one never learned how it gets to the first one through the second")
			}
		}
		dead.Store(true)
		began, last := time.Now(), time.Duration(0)
		for time.Since(began) < 25*time.Second {
			asking, cancel := context.WithTimeout(ctx, 3*time.Second)
			err := echo(asking, third, first)
			cancel()
			if now := time.Since(began); err == nil {
				last = now
			} else if now > 10*time.Second {
				t.Errorf("no answer after %v, the last one after %v: %v", now, last, err)
			}
			time.Sleep(time.Second)
		}
		dead.Store(false)
		for !third.host.Direct(first.host.ID()) {
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				t.Fatal("never connected without a relay again")
			}
		}
		call(t, ctx, third, first)
	})
}
