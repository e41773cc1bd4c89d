package probe

import (
	"slices"
	"testing"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/alpn"
	"pnode/swarm/choice"
)

func TestProbeAllow(t *testing.T) {
	a, b, c := way{"a", plan.QUIC}, way{"b", plan.QUIC}, way{"a", plan.TCP}
	now := time.Now()
	r := &Prober{room: make(chan struct{}, 2), last: map[way]time.Time{}}
	if !r.allow(a, now) || r.allow(a, now.Add(probePause-1)) || !r.allow(b, now) {
		t.Error("one probe of a peer over a transport in the pause, two at once")
	}
	if r.allow(c, now) {
		t.Error("a third at once")
	}
	<-r.room
	if !r.allow(c, now.Add(probePause)) || len(r.last) != 1 {
		t.Errorf("after one ended: %v", r.last)
	}
}

func TestGoodput(t *testing.T) {
	t0 := time.Now()
	at := func(ms int) time.Time { return t0.Add(time.Duration(ms) * time.Millisecond) }
	for name, c := range map[string]struct {
		marks []mark
		want  uint64
	}{
		"nothing":     {nil, 1},
		"one":         {[]mark{{1 << 20, t0}}, 1},
		"two":         {[]mark{{1000, at(0)}, {2000, at(100)}}, 10_000},
		"slow start":  {[]mark{{10, at(0)}, {500, at(1000)}, {1000, at(1100)}}, 5000},
		"a burst":     {[]mark{{400, at(0)}, {500, at(100)}, {700, at(100)}, {800, at(102)}, {1000, at(202)}}, 2000},
		"one instant": {[]mark{{10, at(0)}, {1010, at(0)}}, 1_000_000_000},
	} {
		if got := goodput(c.marks); got != c.want {
			t.Errorf("%s: %d bytes/s, want %d", name, got, c.want)
		}
	}
}

// A worse transport is used where it is 10% faster, and nothing is said where there is no choice.
func TestChoose(t *testing.T) {
	link := func(over plan.Transport, mbit int64) plan.LinkProfile {
		return plan.LinkProfile{Transport: over, BytesPerS: mbit * 1e6 / 8}
	}
	for _, c := range []struct {
		measured []plan.LinkProfile
		over     plan.Transport
		why      string
	}{
		{[]plan.LinkProfile{link(plan.TCP, 90)}, "", ""},
		{[]plan.LinkProfile{link(plan.QUIC, 90), link(plan.TCP, 99)}, plan.QUIC, "90.0 Mbit/s against 99.0 Mbit/s over TCP"},
		{[]plan.LinkProfile{link(plan.TCP, 94), link(plan.QUIC, 61)}, plan.TCP, "94.0 Mbit/s against 61.0 Mbit/s over QUIC"},
		{[]plan.LinkProfile{link(plan.TCP, 20), link(plan.QUIC, 61)}, plan.QUIC, "61.0 Mbit/s against 20.0 Mbit/s over TCP"},
	} {
		if over, why := choose(c.measured); over != c.over || why != c.why {
			t.Errorf("%v: %s, %q, want %s, %q", c.measured, over, why, c.over, c.why)
		}
	}
}

// The end that answers probes prefers what came in faster, while it has not compared the transports itself, and only
// within the time that a rate counts for.
func TestTheOtherEndPrefersToo(t *testing.T) {
	now := time.Now()
	r := &Prober{transport: &alpn.Transport{Config: alpn.Config{Choice: choice.New()}}, heard: map[way]heard{}, compared: map[plan.PeerID]bool{"c": true}}
	first := func(p plan.PeerID) plan.Transport {
		return r.transport.Choice.Order(p, slices.Clone(plan.Transports))[0]
	}
	for _, p := range []plan.PeerID{"a", "b", "c"} {
		r.hear(way{p, plan.QUIC}, 1e6, now)
		if first(p) != plan.QUIC {
			t.Errorf("%s: one rate is a comparison", p)
		}
		later := now.Add(time.Second)
		if p == "b" {
			later = now.Add(heardTime + time.Second)
		}
		r.hear(way{p, plan.TCP}, 9e6, later)
	}
	if why := r.transport.Choice.Why("a", plan.TCP); first("a") != plan.TCP || why != "72.0 Mbit/s against 8.0 Mbit/s over QUIC, as the other end measured" {
		t.Errorf("a: %v first: %q", first("a"), why)
	}
	if first("b") != plan.QUIC || first("c") != plan.QUIC {
		t.Errorf("b: %v first after an old rate; c: %v first though this node has compared", first("b"), first("c"))
	}
}
