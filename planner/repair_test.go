package planner

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"pnode/planner/plan"
)

// without returns the input of the generation after a plan, and without one of its members.
func (in Input) without(p plan.Plan, lost plan.PeerID) Input {
	in.Previous, in.Generation = &p, p.Generation+1
	in.Members = slices.DeleteFunc(slices.Clone(in.Members), func(m Member) bool { return m.Peer == lost })
	return in
}

// TestRepairedPlansHold: without any one member a repaired plan is valid, takes as long as its reasons say, and is the same whatever the
// order of the members. A search has no longer step than a repair, but for what moves less state.
func TestRepairedPlansHold(t *testing.T) {
	rng := rand.New(rand.NewPCG(51, 52))
	repaired, searched := 0, 0
	const n = 16
	for range n {
		in := randomInput(rng)
		for _, m := range in.Members {
			for d := range m.Profile.Devices {
				m.Profile.Devices[d].MemoryFreeBytes += exchangeOf(in) // no tighter than without replicas
			}
		}
		p, _, err := Make(t.Context(), in)
		if err != nil {
			continue
		}
		for _, lost := range p.Peers() {
			next := in.without(p, lost)
			got, reasons, err := Repair(next)
			_, best, none := Make(t.Context(), next)
			if none == nil {
				searched++
			}
			if err != nil {
				if !errors.Is(err, ErrNoFit) {
					t.Fatal(err)
				}
				continue
			}
			if repaired++; none != nil {
				t.Fatalf("repaired, but a search finds nothing: %v", none)
			}
			checkPlan(t, next, got, reasons)
			result, err := predicted(next, got)
			if err != nil || int64(result.Step) != stepNanos(reasons) {
				t.Fatalf("predicted %d (%v), promised %d", result.Step, err, stepNanos(reasons))
			}
			if most := stepNanos(reasons); stepNanos(best)*100 > most*(100+2*nearPercent+changeKindPercent) {
				t.Errorf("a search ends with %s, a repair with %s", best.Lines()[0], reasons.Lines()[0])
			}
			same, _, err := Repair(shuffled(rng, next))
			if err != nil || !bytes.Equal(same.Encode(), got.Encode()) {
				t.Fatalf("another order of members gives another plan:\n%s\n%s\n%v", got.Encode(), same.Encode(), err)
			}
		}
	}
	if repaired*2 < searched || searched < n {
		t.Errorf("%d of %d losses were repaired", repaired, searched)
	}
}

// TestRepairChangesLittle: a spare takes the place of a lost device, and everything else stays, copies too. Without a spare neighbours have
// its layers.
func TestRepairChangesLittle(t *testing.T) {
	in, p := fourNodes(t)
	in.Run.Train.Stages = 0
	lost := p.Replicas[0].Stages[1].Peer
	for st := range p.Replicas[0].Stages { // neighbours, as a new plan has only where there is nobody else
		p.Replicas[0].Stages[st].Holder = p.Replicas[0].Stages[min(st^1, 3)].Peer
	}
	spare := in.Members[0]
	spare.Peer, spare.Profile.Links = "e", nil
	for _, c := range []struct {
		spare bool
		moved []int // stages of before whose layers are elsewhere
	}{{true, []int{1}}, {false, []int{1}}} {
		next := in.without(p, lost)
		next.Members = slices.DeleteFunc(next.Members, func(m Member) bool { return m.Peer == "e" })
		if c.spare {
			next.Members = append(next.Members, spare)
		}
		got, reasons, err := Repair(next)
		if err != nil {
			t.Fatal(err)
		}
		checkPlan(t, next, got, reasons)
		for st, was := range p.Replicas[0].Stages {
			i := slices.IndexFunc(got.Replicas[0].Stages, func(now plan.Placement) bool {
				return now.Layers.First <= was.Layers.First && was.Layers.End <= now.Layers.End && now.Peer == was.Peer
			})
			if moved := slices.Contains(c.moved, st); (i < 0) != moved {
				t.Errorf("with a spare %v: stage %d of before has moved: %v\n%s", c.spare, st, i < 0, got.Encode())
			}
			if c.spare && i >= 0 && was.Holder != lost && got.Replicas[0].Stages[i].Holder != was.Holder {
				t.Errorf("the copies of stage %d go to %s instead of %s", st, got.Replicas[0].Stages[i].Holder, was.Holder)
			}
		}
		if in := got.Places("e"); in != c.spare {
			t.Errorf("the spare is in the plan: %v", in)
		}
	}
}

// TestRepairRefuses: what is whole, or was never there, has nothing to repair.
func TestRepairRefuses(t *testing.T) {
	in, p := fourNodes(t)
	if _, _, err := Repair(in); !errors.Is(err, plan.ErrBadInput) {
		t.Errorf("a whole plan: %v", err)
	}
	in = in.without(p, p.Peers()[0])
	in.Previous = nil
	if _, _, err := Repair(in); !errors.Is(err, plan.ErrBadInput) {
		t.Errorf("no plan: %v", err)
	}
	in.Previous, in.Members = &p, nil
	if _, _, err := Repair(in); !errors.Is(err, ErrNoFit) {
		t.Errorf("nobody is left: %v", err)
	}
}

// TestManyDevicesAreNoWorseThanFewReplicas: of a pool too large for all shapes the search tries some of few replicas.
func TestManyDevicesAreNoWorseThanFewReplicas(t *testing.T) {
	if testing.Short() {
		t.Skip("makes plans of 160 devices")
	}
	in := big(160, 48)
	_, free, err := Make(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	for replicas := 1; replicas <= 4; replicas *= 2 {
		in.Run.Train.Replicas = replicas
		_, asked, err := Make(t.Context(), in)
		if err == nil && stepNanos(free)*100 > stepNanos(asked)*(100+estimatePercent) {
			t.Errorf("%s; asked for: %s", free.Lines()[0], asked.Lines()[0])
		}
	}
}
