package plan

import (
	"slices"
	"testing"
)

// twice is a plan of two replicas of two stages, of which "b" coordinates.
func twice() Plan {
	stage := func(peer PeerID, first, end int) Placement {
		return Placement{Peer: peer, Device: "cpu", Layers: LayerRange{First: first, End: end}}
	}
	return Plan{Replicas: []Pipeline{
		{Stages: []Placement{stage("a", 0, 2), stage("b", 2, 4)}},
		{Stages: []Placement{stage("c", 0, 2), stage("d", 2, 4)}},
	}}
}

// TestWhoCanDoALostOnesPart: who has all of its layers, on one device for each of its devices; from a checkpoint everybody.
func TestWhoCanDoALostOnesPart(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Plan)
		lost   PeerID
		want   []PeerID
	}{
		"the other replica's":      {func(*Plan) {}, "a", []PeerID{"c"}},
		"the coordinator":          {func(*Plan) {}, "b", []PeerID{"d"}},
		"no member":                {func(*Plan) {}, "e", nil},
		"another cut":              {func(p *Plan) { p.Replicas[1].Stages[0].Layers.End, p.Replicas[1].Stages[1].Layers.First = 1, 1 }, "a", nil},
		"who has more":             {func(p *Plan) { p.Replicas[1].Stages[0].Layers.End, p.Replicas[1].Stages[1].Layers.First = 1, 1 }, "c", []PeerID{"a"}},
		"optimizer state in parts": {func(p *Plan) { p.Sharded = LayerRanges{{First: 0, End: 4}} }, "a", nil},
		"and off the device":       {func(p *Plan) { p.Replicas[0].Stages[1].Offload = true }, "a", nil},
		"a third replica": {func(p *Plan) {
			p.Replicas = append(p.Replicas, Pipeline{Stages: []Placement{p.Replicas[0].Stages[0]}})
			p.Replicas[2].Stages[0].Peer = "e"
		}, "c", []PeerID{"a", "e"}},
		"two devices": {func(p *Plan) { p.Replicas[1].Stages[1].Peer, p.Replicas[1].Stages[1].Device = "c", "gpu" }, "c", nil},
		"two devices twice": {func(p *Plan) {
			p.Replicas[0].Stages[1].Peer = "e"
			for r, peer := range []PeerID{"a", "c"} {
				p.Replicas[r].Stages[0].Peer = peer
				p.Replicas[r].Stages = append([]Placement{{Peer: peer, Device: "gpu", Layers: LayerRange{First: 4, End: 5}}}, p.Replicas[r].Stages...)
			}
		}, "a", []PeerID{"c"}},
	} {
		p := twice()
		c.change(&p)
		if got := p.Substitutes(c.lost); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v can, want %v", name, got, c.want)
		}
		barred := c.lost == "e" || len(p.Sharded) > 0 || p.Replicas[0].Stages[1].Offload
		got := p.Replayers(c.lost)
		if barred != (len(got) == 0) || !barred && (len(got) != len(p.Peers())-1 || slices.Contains(got, c.lost) || !slices.IsSorted(got)) {
			t.Errorf("%s: %v can from a checkpoint, of %v", name, got, p.Peers())
		}
	}
}
