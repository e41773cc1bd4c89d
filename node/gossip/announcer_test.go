package gossip

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
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
	if got, want := unmeasured(state, "c", link("e")), []plan.PeerID{"f", "a"}; !slices.Equal(got, want) {
		t.Errorf("c measures %v, want %v", got, want)
	}
	if got, want := unmeasured(state, "a", nil), []plan.PeerID{"b", "c", "e", "f"}; !slices.Equal(got, want) {
		t.Errorf("a measures %v, want %v", got, want)
	}
}

func TestANodeMeasuresAFewLinks(t *testing.T) {
	var state consensus.State
	for i := range 3 * maxLinks {
		state.Members = append(state.Members, consensus.Member{Peer: plan.PeerID(fmt.Sprintf("p%02d", i)), State: consensus.Active})
	}
	if got := unmeasured(state, "p20", nil); len(got) != maxLinks || got[0] != "p21" || got[3] != "p00" {
		t.Errorf("measures %v", got)
	}
	if got := unmeasured(state, "p20", make([]plan.LinkProfile, maxLinks+1)); len(got) != 0 {
		t.Errorf("has enough and measures %v", got)
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
