package holders

import (
	"testing"

	"pnode/planner/plan"
)

func TestBest(t *testing.T) {
	for _, c := range []struct {
		name    string
		options []Option
		want    plan.PeerID
	}{
		{"nobody", nil, ""},
		{"the first of equals", []Option{{Peer: "b"}, {Peer: "a"}}, "a"},
		{"who has fewer copies", []Option{{Peer: "a", Copies: 1}, {Peer: "b"}}, "b"},
		{"no neighbour, though it has fewer copies", []Option{{Peer: "a", Near: true}, {Peer: "b", Copies: 3}}, "b"},
		{"a neighbour elsewhere before a stranger at the same site", []Option{{Peer: "a", Shared: 1}, {Peer: "b", Near: true}}, "b"},
		{"another network and owner before another network", []Option{{Peer: "a", Shared: 1}, {Peer: "b", Shared: 0}}, "b"},
		{"not all with the one elsewhere", []Option{{Peer: "a", Laden: true, Copies: 2}, {Peer: "b", Shared: 2}}, "b"},
		{"but all with one, where that does not matter", []Option{{Peer: "a", Laden: true, Copies: 2}, {Peer: "b", Near: true}}, "a"},
		{"who is in reach before who is elsewhere", []Option{{Peer: "a", Slow: true}, {Peer: "b", Shared: 2}}, "b"},
		{"whom copies reach before who has room", []Option{{Peer: "a", Apart: true}, {Peer: "b", Full: true}}, "b"},
		{"and before who may be reached in time", []Option{{Peer: "a", Apart: true}, {Peer: "b", Slow: true}}, "b"},
		{"of those whom they do not reach the best", []Option{{Peer: "a", Apart: true, Shared: 1}, {Peer: "b", Apart: true}}, "b"},
		{"not who keeps all layers anyway", []Option{{Peer: "a", Whole: true}, {Peer: "b", Spare: true, Shared: 1, Copies: 1}}, "b"},
		{"but nobody who computes instead", []Option{{Peer: "a", Whole: true}, {Peer: "b", Shared: 1}}, "a"},
		{"nor who has no room", []Option{{Peer: "a", Whole: true}, {Peer: "b", Spare: true, Full: true}}, "a"},
		{"nor whom copies do not reach", []Option{{Peer: "a", Whole: true}, {Peer: "b", Spare: true, Apart: true}}, "a"},
		{"nor who is out of reach", []Option{{Peer: "a", Whole: true}, {Peer: "b", Spare: true, Slow: true}}, "a"},
		{"nor who has its share of copies", []Option{{Peer: "a", Whole: true}, {Peer: "b", Spare: true, Laden: true, Copies: 2}}, "a"},
		{"nor who shares more networks", []Option{{Peer: "a", Whole: true, Shared: 1, Networks: 1}, {Peer: "b", Spare: true, Shared: 2, Networks: 2}}, "a"},
		{"nor who keeps all layers, too", []Option{{Peer: "a", Whole: true}, {Peer: "b", Spare: true, Whole: true}}, "a"},
		{"of the others the one with fewer copies", []Option{{Peer: "a", Whole: true}, {Peer: "b", Spare: true, Copies: 1}, {Peer: "c", Spare: true}}, "c"},
		{"who has room before all else", []Option{{Peer: "a", Full: true}, {Peer: "b", Shared: 2, Near: true, Copies: 9}}, "b"},
	} {
		if got, ok := Best(c.options); got.Peer != c.want || ok != (c.want != "") {
			t.Errorf("%s: got %q", c.name, got.Peer)
		}
	}
}

func TestShare(t *testing.T) {
	for _, c := range [][3]int{{4, 4, 2}, {5, 4, 4}, {1, 8, 2}, {8, 2, 8}} {
		if got := Share(c[0], c[1]); got != c[2] {
			t.Errorf("%d stages of %d members: %d, want %d", c[0], c[1], got, c[2])
		}
	}
}

func TestCommon(t *testing.T) {
	a, b := []string{"1.1.1.1", "2.2.2.2", Invite(7)}, []string{"1.1.1.2", "2.2.2.2", Invite(7), Invite(8)}
	if all, networks := Common(a, b); all != 2 || networks != 1 {
		t.Errorf("%d ties in common, %d of them networks, want 2 and 1", all, networks)
	}
}
