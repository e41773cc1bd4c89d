package consensus

import (
	"strings"
	"testing"

	"pnode/planner/plan"
)

// TestNameOf: the machine's name, with the peer ID where two have it; nothing that is no name.
func TestNameOf(t *testing.T) {
	s := State{Members: []Member{
		{Peer: "a", Label: "desk", State: Active},
		{Peer: "b", Label: "rack-1.lan", State: Active},
		{Peer: "c", Label: "rack-1.lan", State: Draining},
		{Peer: "d", Label: "desk", State: Gone},
		{Peer: "e", State: Active},
		{Peer: "f", Label: "\x1b[2J", State: Active},
		{Peer: "g", Label: strings.Repeat("x", 64), State: Active},
	}}
	for peer, want := range map[plan.PeerID]string{
		"a": "desk", "b": "rack-1.lan b", "c": "rack-1.lan c", "d": "desk d", "e": "e", "f": "f", "g": "g", "stranger": "stranger",
	} {
		if got := s.NameOf(peer); got != want {
			t.Errorf("%s is called %q, want %q", peer, got, want)
		}
		if got, known := NamesOf(s)[peer]; known && got != want || !known && peer != "stranger" {
			t.Errorf("%s is called %q among all, want %q", peer, got, want)
		}
	}
}

// TestTheEndOfAnIDHasAName: where one member's ID alone has it.
func TestTheEndOfAnIDHasAName(t *testing.T) {
	const lab, one, two plan.PeerID = "12D3KooWADYC8MqvtEzAp1KpV18Q", "12D3KooWAAAAAAAAAAAAsameends", "12D3KooWBBBBBBBBBBBBsameends"
	s := State{Members: []Member{{Peer: one, Label: "one", State: Active}, {Peer: lab, Label: "lab", State: Active}, {Peer: two, Label: "two", State: Active}}}
	for short, want := range map[string]string{lab.Short(): "lab", one.Short(): "…sameends", "…nobodys1": "…nobodys1"} {
		if got := s.NameOf(plan.PeerID(short)); got != want {
			t.Errorf("%s is called %q, want %q", short, got, want)
		}
	}
	s.Members[0].Label = "lab"
	if got, want := s.NameOf(plan.PeerID(lab.Short())), "lab "+lab.Short(); got != want {
		t.Errorf("of two of one name it is called %q, want %q", got, want)
	}
}
