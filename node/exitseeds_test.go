package node

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// seeds are tried by each test of random seeds, and one alone by go test ./node -run TEST -seed N.
const seeds = 10_000

var oneSeed = flag.Uint64("seed", 0, "the only seed that tests of random states try; 0 is all")

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
		if err := check(rand.New(rand.NewPCG(seed, 19))); err != nil {
			t.Fatalf("seed %d: %v\ntry it alone: go test ./node -run '%s$' -seed %d", seed, err, t.Name(), seed)
		}
	}
}

var exitPeers = []plan.PeerID{"a", "b", "c", "d", "e"}

// randomState is of a run of 10 steps with a few members and checkpoints, in any state that the log may be in.
func randomState(r *rand.Rand) consensus.State {
	run := plan.RunSpec{Train: plan.TrainSpec{Steps: 10, AwaitOwnerS: 60}}
	s := consensus.State{Run: &run, StopWanted: r.IntN(6) == 0, PauseWanted: uint64(r.IntN(2))}
	for _, p := range exitPeers[:1+r.IntN(len(exitPeers))] {
		states := []consensus.MemberState{consensus.Active, consensus.Active, consensus.Active, consensus.Draining, consensus.Gone, consensus.Joining}
		s.Members = append(s.Members, consensus.Member{Peer: p, State: states[r.IntN(len(states))]})
	}
	any := func() plan.PeerID { return s.Members[r.IntN(len(s.Members))].Peer }
	s.Owners = []plan.PeerID{any()}
	if r.IntN(3) == 0 {
		s.Owners = append(s.Owners, exitPeers[r.IntN(len(exitPeers))])
	}
	saved := func(step plan.Step) consensus.Checkpoint {
		c := consensus.Checkpoint{Step: step, Generation: plan.Generation(1 + r.IntN(2)), Last: r.IntN(3) == 0}
		for l := range 2 {
			layer := consensus.LayerRef{Layer: l}
			for range 1 + r.IntN(3) {
				layer.Holders = append(layer.Holders, exitPeers[r.IntN(len(exitPeers))])
			}
			c.Layers = append(c.Layers, layer)
		}
		return c
	}
	if s.Checkpoint.Step = plan.Step(5 * r.IntN(3)); s.Checkpoint.Step > 0 {
		s.Checkpoint = saved(s.Checkpoint.Step)
		for step := s.Checkpoint.Step - 5; step > 0; step -= 5 {
			s.Older = append(s.Older, saved(step))
		}
	}
	s.Finished = s.Checkpoint.Step == 10 && r.IntN(3) == 0
	s.Plan = plan.Plan{Generation: 2, Replicas: []plan.Pipeline{{Stages: []plan.Placement{{Peer: any()}, {Peer: any()}}}}}
	return s
}

// keepsAll reports whether members other than one, which stay, have all layers of a checkpoint: its own way to count.
func keepsAll(s consensus.State, c consensus.Checkpoint, without plan.PeerID) bool {
	stay := map[plan.PeerID]bool{}
	for _, m := range s.Members {
		stay[m.Peer] = m.Peer != without && (m.State == consensus.Active || m.State == consensus.Joining)
	}
	for _, l := range c.Layers {
		kept := false
		for _, p := range l.Holders {
			kept = kept || stay[p]
		}
		if !kept {
			return false
		}
	}
	return true
}

// TestRandomWaysOut: in any state of the log a node leaves with no only copy, ends the run only where it may, and wants one
// thing at a time; and it ends once everybody else is gone, whatever the state was.
func TestRandomWaysOut(t *testing.T) {
	counts := map[string]int{}
	eachSeed(t, func(r *rand.Rand) error {
		s := randomState(r)
		v := exitView{
			State: s, Self: s.Members[r.IntN(len(s.Members))].Peer, Leaving: r.IntN(2) == 0, Newest: s.Checkpoint.Step + plan.Step(r.IntN(3)),
			Running: r.IntN(2) == 0, Stalled: r.IntN(4) == 0, Completed: r.IntN(4) == 0,
		}
		got := wayOut(v)
		wishes := 0
		for what, wanted := range map[string]bool{"over": got.Over, "drain": got.Drain, "stop": got.Stop, "finish": got.Finish} {
			if wanted {
				wishes++
				counts[what]++
			}
		}
		switch me, _ := s.Member(v.Self); {
		case wishes > 1 || got.Left && !got.Over:
			return fmt.Errorf("%+v at once", got)
		case got.Left && (s.Finished || me.State == consensus.Active || !keepsAll(s, s.Checkpoint, v.Self)):
			return fmt.Errorf("%s, %s, leaves the checkpoint of step %d behind with %+v", v.Self, me.State, s.Checkpoint.Step, s.Checkpoint.Layers)
		case got.Over && !got.Left && !s.Finished && (!s.StopWanted || v.Running || s.Checkpoint.Step < v.Newest && !v.Stalled):
			return fmt.Errorf("it ends with step %d of %d saved, though %+v", s.Checkpoint.Step, v.Newest, v)
		case got.Finish && (s.Substitute.Coordinator(s.Plan) != v.Self || s.Checkpoint.Step != s.Run.Train.Steps || v.Running):
			return fmt.Errorf("%s finishes a run at step %d of %d, coordinated by %s", v.Self, s.Checkpoint.Step, s.Run.Train.Steps, s.Substitute.Coordinator(s.Plan))
		case (got.Drain || got.Stop || got.Left) && !v.Leaving:
			return fmt.Errorf("%+v, which nobody asked for", got)
		}
		if got.Left {
			counts["left"]++
		}
		return endsAlone(v)
	})
	for _, what := range []string{"over", "left", "drain", "stop", "finish"} {
		if *oneSeed == 0 && counts[what] == 0 {
			t.Errorf("nothing is %s in %v", what, counts)
		}
	}
}

// endsAlone returns an error where a node that is asked to leave stays once all others are gone and its generation has
// been given up for it.
func endsAlone(v exitView) error {
	v.State.Members = slices.Clone(v.State.Members)
	for i, m := range v.State.Members {
		if m.Peer != v.Self {
			v.State.Members[i].State = consensus.Gone
		}
	}
	v.Leaving, v.Running, v.Stalled, v.Completed = true, false, true, false
	for range 4 {
		got := wayOut(v)
		i := slices.IndexFunc(v.State.Members, func(m consensus.Member) bool { return m.Peer == v.Self })
		switch {
		case got.Over:
			return nil
		case got.Drain:
			v.State.Members[i].State = consensus.Draining
		case got.Stop:
			v.State.StopWanted = true
		default:
			return fmt.Errorf("alone it stays: %+v", v)
		}
	}
	return fmt.Errorf("alone it wants one thing after the other: %+v", v)
}

// TestRandomDeliveries: a node of a finished run ends only where an owner has the model or no owner will, its time is over, or
// others have all of its layers; and always when the time is over. Where it says that the model is, it is.
func TestRandomDeliveries(t *testing.T) {
	settled, early := 0, 0
	eachSeed(t, func(r *rand.Rand) error {
		s := randomState(r)
		s.Finished, s.Checkpoint.Step, s.Checkpoint.Generation = true, 10, 2
		v := deliveryView{
			State: s, Copies: map[plan.PeerID]plan.WholeCopy{}, Waited: time.Duration(r.IntN(80)) * time.Second,
			Leaving: r.IntN(2) == 0, Self: s.Members[r.IntN(len(s.Members))].Peer,
		}
		for _, p := range exitPeers {
			v.Copies[p] = []plan.WholeCopy{
				{}, {Step: 10, Generation: 2}, {Step: 10, Generation: 1}, {Step: 5, Generation: 2}, {Off: true}, {Why: "no room"},
			}[r.IntN(6)]
		}
		has := func(p plan.PeerID) bool { return v.Copies[p] == plan.WholeCopy{Step: 10, Generation: 2} }
		wants := func(p plan.PeerID) bool { // an owner that is there, and can take the model
			m, ok := s.Member(p)
			return ok && m.State != consensus.Gone && !v.Copies[p].Off && v.Copies[p].Why == "" && !has(p)
		}
		got := deliveryOf(v)
		limit := time.Duration(s.Run.Train.AwaitOwnerS) * time.Second
		owned := slices.ContainsFunc(s.Owners, has)
		switch {
		case got.Settled && !owned && slices.ContainsFunc(s.Owners, wants):
			return fmt.Errorf("settled, though an owner of %v waits: %+v", s.Owners, v.Copies)
		case owned && !got.Settled, got.Settled && !got.Over, v.Waited >= limit && !got.Over:
			return fmt.Errorf("it stays: %+v, %+v", got, v)
		case got.Over && !got.Settled && v.Waited < limit && (!v.Leaving || !keepsAll(s, s.Checkpoint, v.Self)):
			return fmt.Errorf("it goes after %v, leaving %v, with layers %+v", v.Waited, v.Leaving, s.Checkpoint.Layers)
		case got.At != "" && !has(got.At):
			return fmt.Errorf("the model is said to be with %s, of %+v", got.At, v.Copies)
		case slices.ContainsFunc(got.Awaited, has):
			return fmt.Errorf("it waits for %v, one of whom has the model", got.Awaited)
		}
		if got.Settled {
			settled++
		} else if got.Over && v.Waited < limit {
			early++
		}
		return nil
	})
	if *oneSeed == 0 && (settled == 0 || early == 0) {
		t.Errorf("%d deliveries were settled, %d nodes left early", settled, early)
	}
}
