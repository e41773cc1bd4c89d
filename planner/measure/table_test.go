package measure

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"pnode/planner/plan"
)

// TestTableIsWhatLinksSay: by numbers of devices, some of one peer, the links are the ones between their peers.
func TestTableIsWhatLinksSay(t *testing.T) {
	rng := rand.New(rand.NewPCG(41, 42))
	peer := func(i int) plan.PeerID { return plan.PeerID(fmt.Sprint("p", i)) }
	counts := map[string]int{}
	for range 50 {
		n := 2 + rng.IntN(20)
		var probes []Probes
		for i := range n {
			p := Probes{From: peer(i)}
			for range rng.IntN(4) {
				p.Links = append(p.Links, plan.LinkProfile{Peer: peer(rng.IntN(n + 2)), BytesPerS: 1 + rng.Int64N(2e8), RTTNanos: rng.Int64N(3e6)})
			}
			probes = append(probes, p)
		}
		links := NewLinks(probes)
		var devices []plan.PeerID
		for range 30 {
			devices = append(devices, peer(rng.IntN(n)))
		}
		table := links.Table(devices)
		for i, from := range devices {
			for j, to := range devices {
				want, measured := links.Between(from, to)
				if got := table.Between(i, j); got != want {
					t.Fatalf("%s to %s: %+v by their numbers, %+v by their names", from, to, got, want)
				}
				switch _, ok := links.measured[[2]plan.PeerID{from, to}]; {
				case from == to:
					counts["local"]++
				case ok:
					counts["measured"]++
				case measured:
					counts["measured the other way"]++
				case want != DefaultLink:
					counts["usual"]++
				}
			}
		}
	}
	for what, n := range counts {
		if n < 100 || len(counts) < 4 {
			t.Errorf("%d links are %s, of %d kinds", n, what, len(counts))
		}
	}
}
