package gossip

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

func TestALinkIsMeasuredByOneEnd(t *testing.T) {
	link := func(peer plan.PeerID) []plan.LinkProfile { return []plan.LinkProfile{{Peer: peer}} }
	state := consensus.State{Members: []consensus.Member{
		{Peer: "a", State: consensus.Active},
		{Peer: "b", State: consensus.Active, Profile: plan.Profile{Links: link("c")}},
		{Peer: "c", State: consensus.Joining},
		{Peer: "d", State: consensus.Gone},
		{Peer: "e", State: consensus.Active},
		{Peer: "f", State: consensus.Draining},
	}}
	due := func(plan.PeerID) bool { return true }
	if got, want := unmeasured(state, "c", link("e"), due), []plan.PeerID{"f", "a"}; !slices.Equal(got, want) {
		t.Errorf("c measures %v, want %v", got, want)
	}
	if got, want := unmeasured(state, "a", nil, due), []plan.PeerID{"b", "c", "e", "f"}; !slices.Equal(got, want) {
		t.Errorf("a measures %v, want %v", got, want)
	}
}

func TestANodeMeasuresAFewLinks(t *testing.T) {
	var state consensus.State
	for i := range 3 * maxLinks {
		state.Members = append(state.Members, consensus.Member{Peer: plan.PeerID(fmt.Sprintf("p%02d", i)), State: consensus.Active})
	}
	due := func(plan.PeerID) bool { return true }
	if got := unmeasured(state, "p20", nil, due); len(got) != maxLinks || got[0] != "p21" || got[3] != "p00" {
		t.Errorf("measures %v", got)
	}
	var own []plan.LinkProfile
	for i := range maxLinks + 1 {
		own = append(own, plan.LinkProfile{Peer: plan.PeerID(fmt.Sprintf("p%02d", i))})
	}
	if got := unmeasured(state, "p20", own, due); len(got) != 0 {
		t.Errorf("has enough and measures %v", got)
	}
	state.Members[0].State, state.Members[1].State = consensus.Gone, consensus.Gone
	if got := unmeasured(state, "p20", own, due); len(got) != 1 || got[0] != "p21" {
		t.Errorf("two of nine have left, and it measures %v", got)
	}
	none := func(p plan.PeerID) bool { return p != "p21" && p != "p22" }
	if got := unmeasured(state, "p20", nil, none); len(got) != maxLinks || got[0] != "p23" {
		t.Errorf("two are not due, and it measures %v", got)
	}
}

// pairNetwork reaches one peer, and measures over what it reaches it.
type pairNetwork struct {
	control, data plan.Transport
	probes        int
}

func (n *pairNetwork) Addrs() []string                      { return nil }
func (n *pairNetwork) ReachedBy(plan.PeerID) plan.Transport { return n.control }
func (n *pairNetwork) Probe(_ context.Context, p plan.PeerID) (plan.LinkProfile, error) {
	n.probes++
	return plan.LinkProfile{Peer: p, BytesPerS: int64(n.probes), Transport: n.data}, nil
}

// linkMachine has links alone.
type linkMachine struct{ links []plan.LinkProfile }

func (m *linkMachine) Profile() plan.Profile { return plan.Profile{Links: m.links} }
func (m *linkMachine) AddLink(l plan.LinkProfile) {
	m.links = append(slices.DeleteFunc(m.links, func(o plan.LinkProfile) bool { return o.Peer == l.Peer }), l)
}
func (m *linkMachine) Measure() (bool, error) { return false, nil }

// TestALinkIsMeasuredAgainOnceItIsDirect: a link through a relay is measured anew after a hole punch, and one that stays
// on the relay in spite of it ever more rarely.
func TestALinkIsMeasuredAgainOnceItIsDirect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, machine := &pairNetwork{control: plan.Relay, data: plan.Relay}, &linkMachine{}
		a := &Announcer{Self: "a", Network: network, Machine: machine, Log: slog.New(slog.DiscardHandler), State: func() consensus.State {
			return consensus.State{Members: []consensus.Member{{Peer: "a", State: consensus.Active}, {Peer: "b", State: consensus.Active}}}
		}}
		probe := func(rounds, want int, when string) {
			t.Helper()
			before := network.probes
			for range rounds {
				a.ProbeLinks(t.Context(), probeTimeout)
				time.Sleep(announceEvery) // virtual
			}
			if got := network.probes - before; got != want {
				t.Errorf("%s: measured %d times, want %d", when, got, want)
			}
		}
		probe(100, 1, "only a relay")
		network.control = plan.QUIC
		probe(1, 1, "punched")
		probe(30, 4, "data stays on the relay") // after 1, 2, 4 and 8 minutes
		network.data = plan.QUIC
		probe(40, 1, "data goes directly too")
		if len(machine.links) != 1 || machine.links[0].Transport != plan.QUIC || len(a.again) != 0 {
			t.Errorf("%+v, %v", machine.links, a.again)
		}
	})
}

// slowNetwork measures a link in a time, and is busy at first.
type slowNetwork struct {
	takes time.Duration
	busy  int
}

func (n *slowNetwork) Addrs() []string                      { return nil }
func (n *slowNetwork) ReachedBy(plan.PeerID) plan.Transport { return plan.QUIC }
func (n *slowNetwork) Probe(_ context.Context, p plan.PeerID) (plan.LinkProfile, error) {
	time.Sleep(n.takes) // virtual
	if n.busy--; n.busy >= 0 {
		return plan.LinkProfile{}, errors.New("busy")
	}
	return plan.LinkProfile{Peer: p, BytesPerS: 1}, nil
}

// quiet is a topic on which nobody hears anything.
type quiet struct{}

func (quiet) Publish(context.Context, string, []byte) error { return nil }
func (quiet) Subscribe(string, func(plan.PeerID, []byte) (any, error), func(plan.PeerID, any)) error {
	return nil
}

// TestMissedLinksAreMeasuredSoon: not with the next profile only, and what came late counts.
func TestMissedLinksAreMeasuredSoon(t *testing.T) {
	for name, c := range map[string]struct {
		network slowNetwork
		within  time.Duration
	}{
		"busy at first": {slowNetwork{takes: time.Second, busy: 1}, time.Second + missedAfter + time.Second},
		"ends late":     {slowNetwork{takes: probeTimeout + time.Second}, probeTimeout + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				machine, probed := &linkMachine{}, false
				a := &Announcer{Self: "a", Network: &c.network, Machine: machine, Members: quiet{}, Log: slog.New(slog.DiscardHandler), State: func() consensus.State {
					return consensus.State{Members: []consensus.Member{{Peer: "a", State: consensus.Active}, {Peer: "b", State: consensus.Active}}}
				}}
				ctx, cancel := context.WithCancel(t.Context())
				go a.Run(ctx, func() { probed = true })
				time.Sleep(c.within)
				synctest.Wait()
				if len(machine.links) != 1 || !probed {
					t.Errorf("after %v: links %v; the first round is over: %v", c.within, machine.links, probed)
				}
				cancel()
			})
		})
	}
}

// deafNetwork reaches most members of many.
type deafNetwork struct {
	all  atomic.Int64
	deaf func(plan.PeerID) bool
}

func (n *deafNetwork) Addrs() []string                      { return nil }
func (n *deafNetwork) ReachedBy(plan.PeerID) plan.Transport { return plan.QUIC }
func (n *deafNetwork) Probe(_ context.Context, p plan.PeerID) (plan.LinkProfile, error) {
	n.all.Add(1)
	if n.deaf(p) {
		return plan.LinkProfile{}, errors.New("no answer")
	}
	return plan.LinkProfile{Peer: p, BytesPerS: 1, Transport: plan.QUIC}, nil
}

// TestProbesOfThousandMembers: a node measures eight links once, goes on to other members where some do not answer, and asks those ever more rarely.
// One that nobody answers asks few of many.
func TestProbesOfThousandMembers(t *testing.T) {
	for name, c := range map[string]struct {
		deaf             func(plan.PeerID) bool
		links            int
		first, eachAfter int64 // probes of the first hour, and of each later one, at most
	}{
		"all answer":            {func(plan.PeerID) bool { return false }, maxLinks, maxLinks, 0},
		"each third is deaf":    {func(p plan.PeerID) bool { return p[len(p)-1]%3 == 0 }, maxLinks, 4 * maxLinks, 0},
		"nobody answers at all": {func(plan.PeerID) bool { return true }, 0, triedLinks * 11, triedLinks * 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var state consensus.State
				for i := range 1000 {
					state.Members = append(state.Members, consensus.Member{Peer: plan.PeerID(fmt.Sprintf("p%03d", i)), State: consensus.Active})
				}
				network, machine := &deafNetwork{deaf: c.deaf}, &linkMachine{}
				a := &Announcer{Self: "p500", Network: network, Machine: machine, Members: quiet{}, Log: slog.New(slog.DiscardHandler), State: func() consensus.State { return state }}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go a.Run(ctx, func() {})
				before := int64(0)
				for hour, most := range []int64{c.first, c.eachAfter, c.eachAfter} {
					time.Sleep(time.Hour) // virtual
					synctest.Wait()
					n := network.all.Load() - before
					t.Logf("hour %d: %d probes", hour, n)
					if n > most {
						t.Errorf("hour %d: %d probes, want %d at most", hour, n, most)
					}
					before += n
				}
				if len(machine.links) != c.links {
					t.Errorf("%d links were measured, want %d", len(machine.links), c.links)
				}
			})
		})
	}
}
