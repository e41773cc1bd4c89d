package planner

import (
	"testing"

	"pnode/pipeline/model"
	"pnode/planner/holders"
	"pnode/planner/plan"
)

// TestCopiesGoElsewhere: to a node that shares neither network nor owner with the stage's, though others are no neighbours of it.
func TestCopiesGoElsewhere(t *testing.T) {
	in := Input{Generation: 1, Costs: make([]model.LayerCost, 2)}
	for _, m := range []struct {
		peer plan.PeerID
		ties []string
	}{{"a", []string{"x"}}, {"b", []string{"x"}}, {"c", []string{"y"}}, {"d", []string{"x"}}, {"e", []string{"x"}}} {
		in.Members = append(in.Members, Member{Peer: m.peer, Ties: m.ties})
	}
	p, err := newProblem(in)
	if err != nil {
		t.Fatal(err)
	}
	of := plan.Plan{Replicas: []plan.Pipeline{{Stages: []plan.Placement{
		{Peer: "a", Layers: plan.LayerRange{End: 1}}, {Peer: "c", Layers: plan.LayerRange{First: 1, End: 2}},
	}}}}
	p.assignHolders(&of)
	if stages := of.Replicas[0].Stages; stages[0].Holder != "c" || stages[1].Holder != "b" {
		t.Errorf("copies are with %s and %s, want c and b", stages[0].Holder, stages[1].Holder)
	}
}

// TestCopiesGoWhereTheyGot: not to a node that those of the stage's node did not get to, unless they get to no other.
func TestCopiesGoWhereTheyGot(t *testing.T) {
	for _, c := range []struct {
		apart []plan.PeerID
		want  plan.PeerID
	}{{nil, "c"}, {[]plan.PeerID{"c"}, "d"}, {[]plan.PeerID{"c", "d"}, "b"}, {[]plan.PeerID{"b", "c", "d"}, "c"}} {
		in := Input{Generation: 1, Costs: make([]model.LayerCost, 2)}
		for _, peer := range []plan.PeerID{"a", "b", "c", "d"} {
			in.Members = append(in.Members, Member{Peer: peer})
		}
		in.Members[0].Apart = c.apart
		p, err := newProblem(in)
		if err != nil {
			t.Fatal(err)
		}
		of := plan.Plan{Replicas: []plan.Pipeline{{Stages: []plan.Placement{
			{Peer: "a", Layers: plan.LayerRange{End: 1}}, {Peer: "b", Layers: plan.LayerRange{First: 1, End: 2}},
		}}}}
		p.assignHolders(&of)
		if got := of.Replicas[0].Stages[0].Holder; got != c.want {
			t.Errorf("without %v: %s, want %s", c.apart, got, c.want)
		}
	}
}

// TestAnOwnersCopyIsThereAnyway: the founder, which came by no invite and keeps all layers, leaves copies to a node that holds nothing.
func TestAnOwnersCopyIsThereAnyway(t *testing.T) {
	in := Input{Generation: 1, Costs: make([]model.LayerCost, 2)}
	for _, peer := range []plan.PeerID{"a", "b", "c", "d"} {
		in.Members = append(in.Members, Member{Peer: peer, Ties: []string{holders.Invite(1)}})
	}
	in.Members[0].Whole, in.Members[0].Ties = true, nil
	p, err := newProblem(in)
	if err != nil {
		t.Fatal(err)
	}
	of := plan.Plan{Replicas: []plan.Pipeline{{Stages: []plan.Placement{
		{Peer: "b", Layers: plan.LayerRange{End: 1}}, {Peer: "c", Layers: plan.LayerRange{First: 1, End: 2}},
	}}}}
	p.assignHolders(&of)
	if stages := of.Replicas[0].Stages; stages[0].Holder != "d" || stages[1].Holder != "d" {
		t.Errorf("copies are with %s and %s, want d", stages[0].Holder, stages[1].Holder)
	}
}
