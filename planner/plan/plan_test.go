package plan

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestRangesAreSets holds what is joined of random ranges against the layers one by one.
func TestRangesAreSets(t *testing.T) {
	const layers = 9
	rng := rand.New(rand.NewPCG(3, 4))
	random := func() (rs LayerRanges) {
		for range rng.IntN(3) {
			rs = append(rs, LayerRange{rng.IntN(layers), rng.IntN(layers + 1)})
		}
		return rs
	}
	for range 2000 {
		a, b := random(), random()
		with, without := a.With(b, layers), a.Without(b, layers)
		for l := range layers {
			if with.Contains(l) != (a.Contains(l) || b.Contains(l)) || without.Contains(l) != (a.Contains(l) && !b.Contains(l)) {
				t.Fatalf("%v and %v: with %v, without %v", a, b, with, without)
			}
		}
		for _, rs := range []LayerRanges{with, without} {
			for i, r := range rs {
				if r.Len() < 1 || i > 0 && r.First <= rs[i-1].End {
					t.Fatalf("%v and %v: %v are not in order with layers between them", a, b, rs)
				}
			}
		}
	}
	if text := (LayerRange{3, 3}).String(); text != "none" {
		t.Error(text)
	}
	if text := (LayerRanges{{0, 2}, {5, 6}}).String(); text != "0-1 and 5" {
		t.Error(text)
	}
}

// TestSenders: neighbours, whoever has the same layers in another replica, and the other end where parameters are tied.
func TestSenders(t *testing.T) {
	stages := func(peers string, ends ...int) (pipe Pipeline) {
		first := 0
		for i, end := range ends {
			pipe.Stages = append(pipe.Stages, Placement{Peer: PeerID(peers[i : i+1]), Layers: LayerRange{First: first, End: end}})
			first = end
		}
		return pipe
	}
	line := Plan{Replicas: []Pipeline{stages("abcd", 1, 2, 3, 4)}}
	two := Plan{Replicas: []Pipeline{stages("abc", 1, 3, 4), stages("def", 2, 3, 4)}}
	for _, c := range []struct {
		of   Plan
		lost []PeerID
		tied bool
		want string
	}{
		{line, nil, true, "[]"},
		{line, []PeerID{"b"}, true, "[a c]"},
		{line, []PeerID{"d"}, false, "[c]"},
		{line, []PeerID{"d"}, true, "[a c]"},
		{line, []PeerID{"b", "c"}, false, "[a d]"},
		{two, []PeerID{"b"}, false, "[a c d e]"},
		{two, []PeerID{"a"}, false, "[b d]"},
		{two, []PeerID{"a"}, true, "[b c d f]"},
	} {
		if got := fmt.Sprint(c.of.Senders(c.lost, c.tied)); got != c.want {
			t.Errorf("to %v of %v: %s, want %s", c.lost, c.of.Peers(), got, c.want)
		}
	}
}
