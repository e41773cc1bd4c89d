package blame

import (
	"slices"
	"testing"

	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// TestDisputes: most of the others convict, an owner is believed, and so is who has contradicted nobody else before. Of two nobody can say who is wrong.
func TestDisputes(t *testing.T) {
	type pair = plan.Contradiction
	note := func(peer, by plan.PeerID) consensus.Blame {
		return consensus.Blame{Peer: peer, Accuser: by, Kind: plan.BadSum, Generation: 1}
	}
	for name, c := range map[string]struct {
		replicas int
		micros   []int         // by replica; empty: one each
		peers    []plan.PeerID // that coordinate replicas; empty: one each
		several  bool          // another node has the first stage of each replica
		owners   []plan.PeerID
		past     []consensus.Blame
		found    []pair
		want     plan.PeerID // who is left out; empty: it is noted
		none     bool
	}{
		"nobody":                        {replicas: 3, none: true},
		"both others contradict one":    {replicas: 3, found: []pair{{By: 0, Of: 2}, {By: 1, Of: 2}}, want: "c"},
		"one contradicts both others":   {replicas: 3, found: []pair{{By: 1, Of: 0}, {By: 1, Of: 2}}, want: "b"},
		"one against one of two":        {replicas: 3, found: []pair{{By: 1, Of: 0}}},
		"one against one of many":       {replicas: 5, found: []pair{{By: 1, Of: 0}}},
		"one against two of four":       {replicas: 5, found: []pair{{By: 1, Of: 0}, {By: 1, Of: 2}}},
		"one against three of four":     {replicas: 5, found: []pair{{By: 1, Of: 0}, {By: 1, Of: 2}, {By: 3, Of: 1}}, want: "b"},
		"two small ones against one":    {replicas: 4, micros: []int{1, 1, 7, 7}, found: []pair{{By: 0, Of: 2}, {By: 1, Of: 2}}},
		"two that have most":            {replicas: 4, micros: []int{1, 7, 7, 1}, found: []pair{{By: 1, Of: 0}, {By: 2, Of: 0}}, want: "a"},
		"half against one":              {replicas: 4, found: []pair{{By: 0, Of: 2}, {By: 1, Of: 2}}},
		"one of several nodes":          {replicas: 3, several: true, found: []pair{{By: 0, Of: 2}, {By: 1, Of: 2}}},
		"a node against itself":         {replicas: 3, peers: []plan.PeerID{"a", "b", "b"}, found: []pair{{By: 1, Of: 2}}, none: true},
		"all against all":               {replicas: 3, found: []pair{{By: 1, Of: 0}, {By: 1, Of: 2}, {By: 0, Of: 2}}},
		"two":                           {replicas: 2, found: []pair{{By: 1, Of: 0}}},
		"two, each against the other":   {replicas: 2, found: []pair{{By: 1, Of: 0}, {By: 0, Of: 1}}},
		"an owner and a stranger":       {replicas: 2, owners: []plan.PeerID{"a"}, found: []pair{{By: 1, Of: 0}}, want: "b"},
		"a stranger and an owner":       {replicas: 2, owners: []plan.PeerID{"b"}, found: []pair{{By: 1, Of: 0}}, want: "a"},
		"two owners":                    {replicas: 2, owners: []plan.PeerID{"a", "b"}, found: []pair{{By: 1, Of: 0}}},
		"the same two again":            {replicas: 3, past: []consensus.Blame{note("a", "b")}, found: []pair{{By: 1, Of: 0}}},
		"again with another one":        {replicas: 3, past: []consensus.Blame{note("a", "b")}, found: []pair{{By: 1, Of: 2}}, want: "b"},
		"again with another, as the of": {replicas: 3, past: []consensus.Blame{note("c", "a")}, found: []pair{{By: 1, Of: 2}}, want: "c"},
		"both again":                    {replicas: 3, past: []consensus.Blame{note("a", "b"), note("a", "c")}, found: []pair{{By: 1, Of: 2}}},
	} {
		s := consensus.State{Owners: c.owners, Blames: c.past, Plan: plan.Plan{Generation: 2, Local: &plan.Local{}}, Merged: &plan.Merged{From: 8, Contradictions: c.found}}
		for i := range c.replicas {
			s.Plan.Replicas = append(s.Plan.Replicas, plan.Pipeline{Micros: 1, Stages: []plan.Placement{{Peer: plan.PeerID(rune('a' + i)), Device: "cpu"}}})
			if len(c.peers) > 0 {
				s.Plan.Replicas[i].Stages[0].Peer = c.peers[i]
			}
			if c.several {
				s.Plan.Replicas[i].Stages = append([]plan.Placement{{Peer: "z"}}, s.Plan.Replicas[i].Stages...)
			}
			if len(c.micros) > 0 {
				s.Plan.Replicas[i].Micros = c.micros[i]
			}
			s.Merged.Parts = append(s.Merged.Parts, plan.Part{Steps: 4})
		}
		r, ok := Dispute(s, c.found)
		switch {
		case ok == c.none:
			t.Errorf("%s: ruled: %t", name, ok)
		case !ok:
		case r.Out != (c.want != "") || r.Out && r.Peer != c.want || r.Kind != plan.BadSum || r.Step != 8 || r.Accuser == r.Peer || r.Accuser == "":
			t.Errorf("%s: %+v, want %q", name, r, c.want)
		case !r.Out && !slices.Contains([]plan.PeerID{"a", "b"}, r.Peer) && c.replicas == 2:
			t.Errorf("%s: %+v", name, r)
		}
	}
}
