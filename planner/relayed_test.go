package planner

import (
	"reflect"
	"strings"
	"testing"

	"pnode/planner/plan"
)

// TestRelayedLinksAreNamed: a link through a relay costs what it was measured with, and the reasons say what it is.
func TestRelayedLinksAreNamed(t *testing.T) {
	direct, relayed := lanedOf(t, "1f1b", 2, 1<<40), lanedOf(t, "1f1b", 2, 1<<40)
	for i := range relayed.Members {
		for j := range relayed.Members[i].Profile.Links {
			relayed.Members[i].Profile.Links[j].Transport = plan.Relay
		}
	}
	p, before, err := Make(t.Context(), direct)
	if err != nil {
		t.Fatal(err)
	}
	q, after, err := Make(t.Context(), relayed)
	if err != nil || !reflect.DeepEqual(p.Replicas, q.Replicas) {
		t.Fatalf("another plan: %v", err)
	}
	count := func(all plan.Reasons) (n int) {
		for _, r := range all {
			if r.Kind == plan.ReasonRelayed && strings.Contains(r.Text, "reach each other through a relay: ") {
				n++
			}
		}
		return n
	}
	if count(before) != 0 || count(after) != 1 {
		t.Errorf("before %q, after %q", before.Lines(), after.Lines())
	}
}

// TestLinksFollowTheirTransport: what messages of the run showed counts, where they go over something better than what
// was measured, and nobody is said to be reached through a relay any more.
func TestLinksFollowTheirTransport(t *testing.T) {
	probed := func(over plan.Transport, rate int64) []Member {
		return []Member{{Peer: "a", Profile: plan.Profile{Links: []plan.LinkProfile{{Peer: "b", BytesPerS: rate, RTTNanos: 2e6, Transport: over}}}}, {Peer: "b"}}
	}
	for name, c := range map[string]struct {
		probed  []Member
		seen    []MeasuredLink
		rate    int64
		relayed bool
	}{
		"relay alone":           {probed(plan.Relay, 1e6), nil, 1e6, true},
		"direct since":          {probed(plan.Relay, 1e6), []MeasuredLink{{From: "a", To: "b", BytesPerS: 5e6, Transport: plan.QUIC}}, 5e6, false},
		"direct, slower":        {probed(plan.Relay, 1e6), []MeasuredLink{{From: "a", To: "b", BytesPerS: 5e5, Transport: plan.TCP}}, 5e5, false},
		"a bound, no rate":      {probed(plan.Relay, 1e6), []MeasuredLink{{From: "a", To: "b", BytesPerS: 1e15, Transport: plan.TCP}}, DefaultLink.BytesPerS, false},
		"seen the other way":    {probed(plan.Relay, 1e6), []MeasuredLink{{From: "b", To: "a", BytesPerS: 5e6, Transport: plan.QUIC}}, 1e6, false},
		"relayed one way":       {probed(plan.QUIC, 9e6), []MeasuredLink{{From: "a", To: "b", Transport: plan.QUIC}, {From: "b", To: "a", Transport: plan.Relay}}, 9e6, true},
		"probed anew":           {probed(plan.QUIC, 9e6), []MeasuredLink{{From: "a", To: "b", BytesPerS: 8e6, Transport: plan.QUIC}}, 8e6, false},
		"the same is no better": {probed(plan.QUIC, 1e6), []MeasuredLink{{From: "a", To: "b", BytesPerS: 8e6, Transport: plan.QUIC}}, 1e6, false},
		"nothing is told":       {probed(plan.Relay, 1e6), []MeasuredLink{{From: "a", To: "b", BytesPerS: 8e6}}, 1e6, true},
	} {
		l := newLinks(c.probed).with(c.seen)
		if link, _ := l.between("a", "b"); link.BytesPerS != c.rate || l.relayed("b", "a") != c.relayed {
			t.Errorf("%s: %d bytes a second, relayed %v", name, link.BytesPerS, l.relayed("b", "a"))
		}
	}
}

func TestMedianOfTheNewestTransport(t *testing.T) {
	sample := func(over plan.Transport, rate int64) Measured {
		return Measured{Links: []MeasuredLink{{From: "a", To: "b", BytesPerS: rate, RTTNanos: rate, Transport: over}}}
	}
	got := Median([]Measured{sample(plan.Relay, 1), sample(plan.Relay, 2), sample(plan.Relay, 3), sample(plan.QUIC, 7)}).Links
	if want := sample(plan.QUIC, 7).Links; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
