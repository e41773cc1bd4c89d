package rounds

import (
	"encoding/json"
	"errors"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pnode/planner/plan"
)

// newPlan returns a local plan of random shares of a run's micro-batches.
func newPlan(rng *rand.Rand, run plan.RunSpec, generation plan.Generation, start plan.Step, stream plan.Stream) plan.Plan {
	p := plan.Plan{Generation: generation, Start: start, Stream: stream, Local: &plan.Local{Rounds: plan.Rounds{Every: 1 + plan.Step(rng.IntN(12)), Fragments: 1}}}
	next, replicas := 0, 2+rng.IntN(min(4, run.Train.Micros-1))
	for r := range replicas {
		micros := run.Train.Micros - next
		if left := replicas - r - 1; left > 0 {
			micros = 1 + rng.IntN(micros-left)
		}
		p.Replicas = append(p.Replicas, plan.Pipeline{FirstMicro: plan.Micro(next), Micros: micros})
		next += micros
	}
	return p
}

// trial is a run whose members die, are slow, or lie.
type trial struct {
	t     *testing.T
	rng   *rand.Rand
	run   plan.RunSpec
	p     plan.Plan
	used  map[int64]bool // micro-batches that counted
	at    plan.Step
	saved struct {
		used   map[int64]bool
		at     plan.Step
		stream plan.Stream
	}
	seen map[string]int
}

// word returns what a replica says of what another one sent.
func (x *trial) word() plan.Hash {
	return plan.Hash{byte(x.rng.IntN(256)), byte(x.rng.IntN(256)), byte(x.rng.IntN(256))}
}

// gathers returns what the replicas of a round propose, who is dead, whose messages may have come to some, and who ends the round before it is closed, which
// it may be.
func (x *trial) gathers(r Round, closed bool) (all []plan.Gathered, dead, hasty []plan.Replica) {
	n := len(x.p.Replicas)
	sent := make([]plan.Part, n)
	for q := range sent {
		sent[q] = plan.Part{Steps: r.End - r.From, Sum: x.word()}
		if early := x.rng.IntN(15) == 0; closed && x.rng.IntN(3) == 0 || early {
			sent[q].Steps = 1 + plan.Step(x.rng.IntN(int(r.End-r.From)))
			if early && sent[q].Steps < r.End-r.From {
				hasty = append(hasty, plan.Replica(q))
			}
		}
		if x.rng.IntN(12) == 0 {
			dead = append(dead, plan.Replica(q))
		}
	}
	for q := range n {
		g := plan.Gathered{Generation: x.p.Generation, From: r.From, Replica: plan.Replica(q), Parts: slices.Clone(sent), Due: x.rng.IntN(10) == 0}
		for _, d := range dead {
			if x.rng.IntN(2) == 0 {
				g.Parts[d] = plan.Part{}
			}
		}
		if x.rng.IntN(30) == 0 { // a lie, of itself or another one
			g.Parts[x.rng.IntN(n)].Sum = x.word()
		}
		if !slices.Contains(dead, g.Replica) {
			all = append(all, g)
		}
	}
	x.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all, dead, hasty
}

// TestRandomHistories has rounds of many plans carried out with lost, slow and lying replicas, entries in any order, repeated and late. However that
// goes, a round is merged once, by a quorum that has the same, and no micro-batch counts twice or is forgotten.
func TestRandomHistories(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 11))
		run := plan.RunSpec{Train: plan.TrainSpec{Micros: 2 + rng.IntN(9), Steps: plan.Step(20 + rng.IntN(80)), CheckpointEvery: plan.Step(rng.IntN(15))}}
		x := &trial{t: t, rng: rng, run: run, used: map[int64]bool{}, seen: seen}
		x.saved.used = map[int64]bool{}
		for generation := plan.Generation(1); x.saved.at < run.Train.Steps; generation++ {
			if generation > 2000 {
				t.Fatalf("seed %d: at step %d after 2,000 plans", seed, x.saved.at)
			}
			x.used, x.at = maps.Clone(x.saved.used), x.saved.at
			x.p = newPlan(rng, run, generation, x.at, x.saved.stream)
			for r := First(run, x.p); r != nil; {
				m, ok := x.round(*r)
				if !ok {
					seen["lost"]++
					break
				}
				r = After(run, x.p, m)
			}
		}
	}
	for _, what := range []string{"merged", "closed early", "left out", "dead and counted", "disputed", "no quorum left", "lost", "given back", "last", "saved", "refused", "hasty"} {
		if seen[what] < 20 {
			t.Errorf("%s: only %d times in all histories %v", what, seen[what], seen)
		}
	}
}

// round carries a round out until it is merged or can never be.
func (x *trial) round(r Round) (plan.Merged, bool) {
	t, closes := x.t, x.rng.IntN(3) == 0
	all, dead, hasty := x.gathers(r, closes)
	before, _ := json.Marshal(r)
	defer func(first Round) {
		if after, _ := json.Marshal(first); string(after) != string(before) {
			t.Fatalf("a round is changed in its place:\n%s\n%s", before, after)
		}
	}(r)
	ending := x.rng.IntN(15) == 0
	early := func(g plan.Gathered) bool { // some have ended the round since it was closed
		for q, part := range g.Parts {
			if part.Steps > 0 && part.Steps < r.End-r.From && !slices.Contains(hasty, plan.Replica(q)) {
				return true
			}
		}
		return false
	}
	for range 400 {
		if m, ok := r.Merge(x.run, x.p, ending); ok {
			x.check(r, m, dead, ending)
			return m, true
		}
		if _, err := r.Gather(plan.Gathered{From: r.From + 1, Parts: make([]plan.Part, len(x.p.Replicas))}); !errors.Is(err, ErrStale) {
			t.Fatalf("a word of another round: %v", err)
		}
		var err error
		next := r
		switch {
		case x.rng.IntN(40) == 0: // two that do not reach each other
			next, err = r.LeaveOut(x.p, LeftOut{plan.Replica(x.rng.IntN(len(x.p.Replicas))), "no line"})
		case len(dead) > 0 && x.rng.IntN(8) == 0:
			next, err = r.LeaveOut(x.p, LeftOut{dead[x.rng.IntN(len(dead))], "dead"})
		case closes && x.rng.IntN(8) == 0:
			if next = r.Close(); !next.Closed {
				t.Fatal("a round is not closed")
			}
		case len(r.Hasty) > 0 && x.rng.IntN(8) == 0:
			next, err = r.LeaveOut(x.p, LeftOut{r.Hasty[0].Of, "it was hasty"})
		case len(all) > 0:
			g := all[x.rng.IntN(len(all))]
			if !r.Closed && early(g) {
				continue
			}
			next, err = r.Gather(g)
			if errors.Is(err, ErrRefused) && !slices.Contains(hasty, g.Replica) && g.Parts[g.Replica].Steps > 0 && strings.Contains(err.Error(), "ended the round") {
				t.Fatalf("an honest replica is not believed: %v\n%+v", err, r)
			}
		}
		if len(next.Hasty) > len(r.Hasty) {
			x.seen["hasty"]++
		}
		if err != nil {
			x.seen["refused"]++
			if !reflect.DeepEqual(next, r) {
				t.Fatalf("an entry is refused (%v) and changes the round:\n%+v\n%+v", err, r, next)
			}
		}
		if r.Closed && !next.Closed {
			t.Fatalf("a round is open again:\n%+v\n%+v", r, next)
		}
		if r = next; !quorum(x.p, r.Awaited()) {
			t.Fatalf("replicas %v of %+v are awaited", r.Awaited(), x.p.Replicas)
		}
	}
	x.seen["no quorum left"]++
	return plan.Merged{}, false
}

// check compares an outer step with its definition.
func (x *trial) check(r Round, m plan.Merged, dead []plan.Replica, ending bool) {
	t, train := x.t, x.run.Train
	x.seen["merged"]++
	if m.From != x.at || m.From != r.From || m.To <= m.From || m.To > r.End || m.Generation != x.p.Generation {
		t.Fatalf("from %d to %d after step %d, in a round up to %d", m.From, m.To, x.at, r.End)
	}
	micros, most := 0, plan.Step(0)
	for q, pipe := range x.p.Replicas {
		part := m.Parts[q]
		if part.Steps == 0 {
			continue
		}
		micros, most = micros+pipe.Micros, max(most, part.Steps)
		for _, a := range r.Awaited() {
			if !slices.Contains(m.Disputed, a) && r.Gathered[a][q] != part {
				t.Fatalf("replica %d counts with %v, and replica %d has %v", q, part, a, r.Gathered[a][q])
			}
		}
		for i := range int64(part.Steps) * int64(pipe.Micros) {
			n := r.Stream.At(int64(r.End-r.From)*int64(pipe.FirstMicro) + i)
			if x.used[n] {
				t.Fatalf("micro-batch %d counts again, for replica %d of step %d", n, q, m.To)
			}
			x.used[n] = true
		}
		if slices.Contains(dead, plan.Replica(q)) {
			x.seen["dead and counted"]++
		}
	}
	if 2*micros < train.Micros || m.To != r.From+most {
		t.Fatalf("%d micro-batches of %d are counted, up to step %d", micros, train.Micros, m.To)
	}
	full := m.Stream.Full(m.To, train.Micros)
	if err := full.Validate(); err != nil {
		t.Fatal(err)
	}
	left := map[int64]bool{}
	for _, given := range full.Given {
		for n := given.First; n < given.End; n++ {
			left[n] = true
		}
	}
	for n := range x.used {
		if n >= full.Fresh {
			t.Fatalf("micro-batch %d counted, and is taken again from %d on", n, full.Fresh)
		}
	}
	for n := range full.Fresh {
		if x.used[n] == left[n] {
			t.Fatalf("micro-batch %d counted: %t, given back: %t", n, x.used[n], left[n])
		}
	}
	if len(full.Given) > 0 {
		x.seen["given back"]++
	}
	last := ending || len(r.LeftOut) > 0 || len(m.Disputed) > 0 || m.To == train.Steps
	every := train.CheckpointEvery
	if m.Last != last || m.Save != (last || r.Due || every > 0 && m.To/every != m.From/every) {
		t.Fatalf("step %d to %d: last %t, saved %t: %+v of %+v", m.From, m.To, m.Last, m.Save, train, r)
	}
	for what, is := range map[string]bool{"closed early": m.To < r.End, "left out": len(r.LeftOut) > 0, "disputed": len(m.Disputed) > 0, "last": m.Last, "saved": m.Save} {
		if is {
			x.seen[what]++
		}
	}
	x.at = m.To
	if m.Save {
		x.saved.used, x.saved.at, x.saved.stream = maps.Clone(x.used), m.To, m.Stream
	}
}

// TestOrderDoesNotMatter to what replicas say: the round and the outer step are the same.
func TestOrderDoesNotMatter(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 12))
		run := plan.RunSpec{Train: plan.TrainSpec{Micros: 4 + rng.IntN(9), Steps: 100}}
		x := &trial{t: t, rng: rng, run: run, p: newPlan(rng, run, 1, 0, plan.Stream{})}
		first := First(run, x.p)
		all, dead, _ := x.gathers(*first, true)
		start := first.Close()
		for _, d := range dead {
			if next, err := start.LeaveOut(x.p, LeftOut{d, "dead"}); err == nil {
				start = next
			}
		}
		var want Round
		for try := range 6 {
			r, merged := start, 0
			for i, g := range all {
				var err error
				if r, err = r.Gather(g); err != nil {
					continue // lacks a dead one that a quorum needs
				}
				if _, ok := r.Merge(run, x.p, false); ok {
					if merged++; i < len(all)-1 {
						t.Fatalf("seed %d: merged after %d of %d", seed, i+1, len(all))
					}
				}
			}
			if try == 0 {
				want = r
			}
			if merged > 1 || !reflect.DeepEqual(r, want) {
				t.Fatalf("seed %d: merged %d times, from\n%+v\nwant\n%+v", seed, merged, r, want)
			}
			rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		}
	}
}
