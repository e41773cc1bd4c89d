package leader

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pnode/planner/plan"
)

// seeds are tried by each test of random seeds, and one alone by go test ./node/leader -run TEST -seed N.
const seeds = 10_000

var oneSeed = flag.Uint64("seed", 0, "the only seed that tests of random seeds try, and tell of; 0 is all")

// eachSeed has a check tried with every seed, and names one that fails.
func eachSeed(t *testing.T, check func(r *rand.Rand) error) {
	t.Helper()
	from, to := uint64(1), uint64(seeds)
	if testing.Short() {
		to = seeds / 20
	}
	if *oneSeed != 0 {
		from, to = *oneSeed, *oneSeed
	}
	for seed := from; seed <= to; seed++ {
		if err := check(rand.New(rand.NewPCG(seed, 17))); err != nil {
			t.Fatalf("seed %d: %v\ntry it alone: go test ./node/leader -run '%s$' -seed %d", seed, err, t.Name(), seed)
		}
	}
}

// TestRandomSalvages: whatever random members offer of a random plan, a salvage has every layer once, with whoever offers
// it, at a step that the state can be brought to; and there is one at the newest such step.
func TestRandomSalvages(t *testing.T) {
	found, replays := 0, 0
	eachSeed(t, func(r *rand.Rand) error {
		const layers = 6
		peers := []plan.PeerID{"a", "b", "c", "d", "e", "f"}
		p := randomPlan(r, peers, layers)
		checkpoint := plan.Step(30)
		var offers []offer
		for i := range p.Replicas {
			for s, place := range p.Replicas[i].Stages {
				o := offer{By: place.Peer, StageID: plan.StageID{Replica: plan.Replica(i), Stage: plan.Stage(s)}}
				switch r.IntN(8) {
				case 0, 1: // dead
				case 2:
					o.Step = 29 + plan.Step(r.IntN(9))
					offers = append(offers, o)
				case 3:
					o.Step = 35 + plan.Step(r.IntN(2))
					o.Pending = o.Step + 1
					offers = append(offers, o)
				default:
					o.Step = 36
					offers = append(offers, o)
				}
				if r.IntN(3) == 0 {
					offers = append(offers, offer{By: peers[r.IntN(len(peers))], StageID: o.StageID, Replay: true, From: checkpoint - plan.Step(r.IntN(2))*10})
				}
			}
		}
		got, ok := salvageOf(p, layers, checkpoint, offers)
		newest := newestReachable(p, layers, checkpoint, offers)
		if !ok {
			if newest > checkpoint {
				return fmt.Errorf("nothing is saved, where %+v reach step %d", offers, newest)
			}
			return nil
		}
		found++
		if got.Step != newest {
			return fmt.Errorf("step %d is saved, where %+v reach %d", got.Step, offers, newest)
		}
		replayers := map[plan.PeerID]bool{}
		next := 0
		for _, part := range got.Parts {
			id := plan.StageID{Replica: part.Replica, Stage: part.Stage}
			given := slices.ContainsFunc(offers, func(o offer) bool {
				return o.By == part.By && o.StageID == id && o.reaches(got.Step) && (!o.Replay || o.From == part.From)
			})
			if part.Layers.First != next || part.Layers.End <= next || !given || !inside(p.At(id).Layers, part.Layers) {
				return fmt.Errorf("%s, where %+v are offered", told(got, ok), offers)
			}
			next = part.Layers.End
			if part.By != p.At(id).Peer {
				replayers[part.By] = true
				replays++
			}
		}
		if next != layers || len(replayers) > 1 {
			return fmt.Errorf("%s has layers up to %d of %d, with %d members that replay", told(got, ok), next, layers, len(replayers))
		}
		return nil
	})
	if *oneSeed == 0 && (found == 0 || replays == 0) {
		t.Errorf("%d salvages, %d parts of them replayed", found, replays)
	}
}

func inside(outer, inner plan.LayerRange) bool {
	return outer.First <= inner.First && inner.End <= outer.End
}

// randomPlan has 1 or 2 replicas of 1 to 3 stages, each cut anywhere.
func randomPlan(r *rand.Rand, peers []plan.PeerID, layers int) plan.Plan {
	p := plan.Plan{Generation: 3, Start: 30}
	order := r.Perm(len(peers))
	for range 1 + r.IntN(2) {
		stages := 1 + r.IntN(min(3, layers, len(order)))
		cuts := append(r.Perm(layers - 1)[:stages-1], layers-1)
		slices.Sort(cuts)
		var pipe plan.Pipeline
		for i, cut := range cuts {
			first := 0
			if i > 0 {
				first = cuts[i-1] + 1
			}
			pipe.Stages = append(pipe.Stages, plan.Placement{Peer: peers[order[0]], Device: "cpu", Layers: plan.LayerRange{First: first, End: cut + 1}})
			if order = order[1:]; len(order) == 0 {
				order = r.Perm(len(peers))
			}
		}
		p.Replicas = append(p.Replicas, pipe)
	}
	return p
}

// newestReachable is salvageOf's step by trying: the newest that an offer has, at which every layer is offered, by its own
// workers and one member that replays.
func newestReachable(p plan.Plan, layers int, checkpoint plan.Step, offers []offer) (newest plan.Step) {
	for _, at := range offers {
		if at.Replay || at.Step <= max(checkpoint, newest) {
			continue
		}
		for _, with := range append(slices.Clone(offers), offer{}) { // who replays, and from where
			covered := 0
			for l := range layers {
				if slices.ContainsFunc(offers, func(o offer) bool {
					mine := !o.Replay || with.Replay && o.By == with.By && o.From == with.From
					return mine && o.reaches(at.Step) && p.At(o.StageID).Layers.Contains(l)
				}) {
					covered++
				}
			}
			if covered == layers {
				newest = at.Step
			}
		}
	}
	return newest
}

// TestRandomFailures has the leader's rule decide for random members that die, come back, are cut off, leave and join, and
// carries out what it decides. See world for what must hold.
func TestRandomFailures(t *testing.T) {
	counts := map[string]int{}
	eachSeed(t, func(r *rand.Rand) error {
		w := newWorld(r, counts)
		if *oneSeed != 0 {
			w.tell = t.Logf
		}
		return w.play()
	})
	for _, what := range []string{"plan", "salvage", "salvaged", "again", "replay", "gone", "ended", "doubt", "pause"} {
		if *oneSeed == 0 && !testing.Short() && counts[what] == 0 {
			t.Errorf("no %s in %d seeds", what, seeds)
		}
	}
	t.Log(counts)
}
