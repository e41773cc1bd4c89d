package rounds

import (
	"fmt"
	"testing"

	"pnode/planner/plan"
)

func TestBegin(t *testing.T) {
	const start = 40
	held := func(r plan.Replica, peers ...plan.PeerID) (o Own) {
		o.Replica = r
		for _, p := range peers {
			o.Holders = append(o.Holders, []plan.PeerID{p})
		}
		return o
	}
	for name, c := range map[string]struct {
		local    bool
		replicas [][]plan.PeerID // by replica who trains each layer
		states   []Own
		want     string
	}{
		"nobody has any":              {true, [][]plan.PeerID{{"a", "a"}, {"b", "b"}}, nil, "- -"},
		"all stay":                    {true, [][]plan.PeerID{{"a", "a"}, {"b", "b"}}, []Own{held(0, "a", "a"), held(1, "b", "b")}, "0 1"},
		"other numbers":               {true, [][]plan.PeerID{{"b", "b"}, {"a", "a"}}, []Own{held(0, "a", "a"), held(1, "b", "b")}, "1 0"},
		"most of it":                  {true, [][]plan.PeerID{{"a", "b"}, {"b", "b"}}, []Own{held(0, "b", "b"), held(1, "a", "b")}, "1 0"},
		"one joins":                   {true, [][]plan.PeerID{{"c", "c"}, {"a", "a"}, {"b", "b"}}, []Own{held(0, "a", "a"), held(1, "b", "b")}, "0* 0 1"},
		"one is gone":                 {true, [][]plan.PeerID{{"c", "c"}, {"b", "b"}}, []Own{held(1, "b", "b")}, "1* 1"},
		"one has moved":               {true, [][]plan.PeerID{{"c", "c"}, {"b", "b"}}, []Own{held(0, "a", "a"), held(1, "b", "b")}, "0 1"},
		"more states than replicas":   {true, [][]plan.PeerID{{"b", "b"}, {"c", "c"}}, []Own{held(0, "a", "a"), held(1, "b", "b"), held(2, "c", "c")}, "1 2"},
		"every step together":         {false, [][]plan.PeerID{{"b", "b"}, {"c", "c"}}, []Own{held(1, "b", "b"), held(2, "c", "c")}, "1 1"},
		"a layer learns nothing":      {true, [][]plan.PeerID{{"a", "a"}, {"b", "b"}}, []Own{{Replica: 4, Holders: [][]plan.PeerID{nil, {"b"}}}}, "4* 4"},
		"a model of more layers, too": {true, [][]plan.PeerID{{"a", "a", "a"}, {"b", "b", "b"}}, []Own{held(3, "b")}, "3* 3"},
	} {
		p := plan.Plan{Start: start}
		if c.local {
			p.Local = Choice{Every: 10, Codec: "int8"}.Local()
		}
		for _, peers := range c.replicas {
			var pipe plan.Pipeline
			for l, peer := range peers {
				pipe.Stages = append(pipe.Stages, plan.Placement{Peer: peer, Layers: plan.LayerRange{First: l, End: l + 1}})
			}
			p.Replicas = append(p.Replicas, pipe)
		}
		Begin(&p, c.states)
		got := ""
		for i, pipe := range p.Replicas {
			if i > 0 {
				got += " "
			}
			switch own := pipe.Own; {
			case own == nil:
				got += "-"
			case own.Step != start:
				t.Errorf("%s: replica %d begins with a state of step %d", name, i, own.Step)
			case own.Copied:
				got += fmt.Sprint(own.Replica, "*")
			default:
				got += fmt.Sprint(own.Replica)
			}
		}
		if got != c.want {
			t.Errorf("%s: replicas begin with %s, want %s", name, got, c.want)
		}
	}
}
