package blame

import (
	"testing"

	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// lostLink is the word of a member that has lost its link to another.
func lostLink(by, to plan.PeerID) accusation {
	return accusation{By: by, Fault: plan.Fault{Accused: to, Kind: plan.LostLink, Step: 12}}
}

// TestParted: who is left out where both ends of a dead link live.
func TestParted(t *testing.T) {
	left := func(peer, accuser plan.PeerID) consensus.Blame {
		return consensus.Blame{Peer: peer, Accuser: accuser, Kind: plan.LostLink, Until: 1}
	}
	for _, c := range []struct {
		name   string
		said   []accusation
		lively []plan.PeerID
		owners []plan.PeerID
		past   []consensus.Blame
		want   plan.PeerID // "" is nobody
		absent plan.PeerID
	}{
		{"the accused", []accusation{lostLink("a", "b")}, []plan.PeerID{"a", "b"}, nil, nil, "b", ""},
		{"whoever more cannot reach", []accusation{lostLink("a", "b"), lostLink("b", "a"), lostLink("c", "a")}, []plan.PeerID{"a", "b", "c"}, nil, nil, "a", ""},
		{"no owner", []accusation{lostLink("a", "b")}, []plan.PeerID{"a", "b"}, []plan.PeerID{"b"}, nil, "a", ""},
		{"nobody where the accused was silent to all", []accusation{lostLink("a", "b")}, []plan.PeerID{"a"}, nil, nil, "", ""},
		{"nor where the accuser was", []accusation{lostLink("a", "b")}, []plan.PeerID{"b"}, nil, nil, "", ""},
		{"nor for another fault", []accusation{{By: "a", Fault: plan.Fault{Accused: "b", Kind: plan.NoProgress}}}, []plan.PeerID{"a", "b"}, nil, nil, "", ""},
		{"who accuses one after the other", []accusation{lostLink("a", "b")}, []plan.PeerID{"a", "b"}, nil, []consensus.Blame{left("c", "a")}, "a", ""},
		{"but no owner that does", []accusation{lostLink("a", "b")}, []plan.PeerID{"a", "b"}, []plan.PeerID{"a"}, []consensus.Blame{left("c", "a")}, "b", ""},
		{"who is accused by one after the other", []accusation{lostLink("a", "b")}, []plan.PeerID{"a", "b"}, nil, []consensus.Blame{left("b", "c")}, "b", ""},
		{"nobody where the accused has not begun", []accusation{lostLink("a", "b")}, []plan.PeerID{"a", "b"}, []plan.PeerID{"b"}, nil, "", "b"},
		{"nor where the accuser has not", []accusation{lostLink("a", "b")}, []plan.PeerID{"a", "b"}, nil, nil, "", "a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr := Trial{Accusations: c.said, Owners: c.owners, Past: c.past, Lively: map[plan.PeerID]bool{}, Absent: map[plan.PeerID]bool{c.absent: true}, Faults: map[plan.PeerID]int{}, Name: func(p plan.PeerID) string { return string(p) }}
			for _, p := range c.lively {
				tr.Lively[p] = true
			}
			got, ok := tr.Parted()
			if ok != (c.want != "") || got.Peer != c.want || ok && !(got.Out && got.Parted) {
				t.Errorf("got %+v, want %q", got, c.want)
			}
		})
	}
}

// TestAnOwnerThatHasNotBegun: nobody is left out in its place.
func TestAnOwnerThatHasNotBegun(t *testing.T) {
	for absent, want := range map[plan.PeerID]plan.PeerID{"": "b", "a": "a"} {
		said := []accusation{lostLink("b", "a")}
		tr := Trial{
			Accusations: said, Links: [][]accusation{said, said}, Owners: []plan.PeerID{"a"}, Absent: map[plan.PeerID]bool{absent: true},
			Faults: map[plan.PeerID]int{}, Name: func(p plan.PeerID) string { return string(p) },
		}
		if got, ok := Judge(tr); !ok || got.Peer != want || !got.Out {
			t.Errorf("%q has not begun: %+v, want %q to be left out", absent, got, want)
		}
	}
}
