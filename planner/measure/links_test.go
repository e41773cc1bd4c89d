package measure

import (
	"math"
	"testing"

	"pnode/planner/plan"
)

// TestLinksFollowTheirTransport: what messages of the run showed counts, where they go over something better than what
// was measured, and nobody is said to be reached through a relay any more.
func TestLinksFollowTheirTransport(t *testing.T) {
	probed := func(over plan.Transport, rate int64) []Probes {
		return []Probes{{From: "a", Links: []plan.LinkProfile{{Peer: "b", BytesPerS: rate, RTTNanos: 2e6, Transport: over}}}, {From: "b"}}
	}
	for name, c := range map[string]struct {
		probed  []Probes
		seen    []Link
		rate    int64
		relayed bool
	}{
		"relay alone":           {probed(plan.Relay, 1e6), nil, 1e6, true},
		"direct since":          {probed(plan.Relay, 1e6), []Link{{From: "a", To: "b", BytesPerS: 5e6, Transport: plan.QUIC}}, 5e6, false},
		"direct, slower":        {probed(plan.Relay, 1e6), []Link{{From: "a", To: "b", BytesPerS: 5e5, Transport: plan.TCP}}, 5e5, false},
		"a bound, no rate":      {probed(plan.Relay, 1e6), []Link{{From: "a", To: "b", BytesPerS: 1e15, Transport: plan.TCP}}, DefaultLink.BytesPerS, false},
		"seen the other way":    {probed(plan.Relay, 1e6), []Link{{From: "b", To: "a", BytesPerS: 5e6, Transport: plan.QUIC}}, 1e6, false},
		"relayed one way":       {probed(plan.QUIC, 9e6), []Link{{From: "a", To: "b", Transport: plan.QUIC}, {From: "b", To: "a", Transport: plan.Relay}}, 9e6, true},
		"probed anew":           {probed(plan.QUIC, 9e6), []Link{{From: "a", To: "b", BytesPerS: 8e6, Transport: plan.QUIC}}, 8e6, false},
		"the same is no better": {probed(plan.QUIC, 1e6), []Link{{From: "a", To: "b", BytesPerS: 8e6, Transport: plan.QUIC}}, 1e6, false},
		"nothing is told":       {probed(plan.Relay, 1e6), []Link{{From: "a", To: "b", BytesPerS: 8e6}}, 1e6, true},
	} {
		l := NewLinks(c.probed).With(c.seen)
		if link, _ := l.Between("a", "b"); link.BytesPerS != c.rate || l.Relayed("b", "a") != c.relayed {
			t.Errorf("%s: %d bytes a second, relayed %v", name, link.BytesPerS, l.Relayed("b", "a"))
		}
	}
}

// Heartbeats say what they like of links, too: times do not overflow into better ones.
func TestMeasuredLinksDoNotOverflow(t *testing.T) {
	l := NewLinks(nil).With([]Link{{From: "a", To: "b", BytesPerS: math.MaxInt64, RTTNanos: math.MaxInt64, JitterNanos: math.MaxInt64}})
	if link, _ := l.Between("a", "b"); link.RTTNanos != 3*plan.MaxLinkNanos || link.BytesPerS > DefaultLink.BytesPerS {
		t.Errorf("%+v", link)
	}
}
