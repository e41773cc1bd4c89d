package leader

import (
	"math/rand/v2"
	"os"
	"reflect"
	"regexp"
	"slices"
	"testing"
	"time"

	"pnode/node/gossip"
	"pnode/node/leader/blame"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// TestRulesAreListed holds the list of rules in doc.go.
func TestRulesAreListed(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var listed, names []string
	for _, entry := range regexp.MustCompile(`(?m)^//  ?\d+\. ([a-z ]+): `).FindAllStringSubmatch(string(text), -1) {
		listed = append(listed, entry[1])
	}
	for _, r := range rules {
		names = append(names, r.name)
	}
	if !slices.Equal(listed, names) {
		t.Errorf("doc.go lists the rules %q, decide asks %q", listed, names)
	}
}

// TestTheOrderOfRulesCounts: each rule decides some views, and of two neighbours the first one has its way in some views in which
// both apply. Those that exclude each other are named.
func TestTheOrderOfRulesCounts(t *testing.T) {
	exclude := []string{"parted", "salvaging", "orphaned"} // the rule before
	decided, overruled := map[string]int{}, map[string]int{}
	for seed := range uint64(10_000) {
		v := randomView(rand.New(rand.NewPCG(seed, 23)))
		before, first := verdict{}, true
		applied := false // the rule before
		for _, r := range rules {
			next, ok := r.verdict(v)
			if ok && first {
				first = false
				decided[r.name]++
				if got := decide(v); !reflect.DeepEqual(got, next) {
					t.Fatalf("seed %d: rule %q says %+v, decide %+v", seed, r.name, next, got)
				}
			}
			if ok && applied && !reflect.DeepEqual(before, next) {
				overruled[r.name]++
			}
			before, applied = next, ok
		}
	}
	for i, r := range rules {
		if decided[r.name] == 0 {
			t.Errorf("rule %q decides no view", r.name)
		}
		if excluded := i == 0 || slices.Contains(exclude, r.name); excluded != (overruled[r.name] == 0) {
			t.Errorf("rule %q applies in %d views together with the one before it", r.name, overruled[r.name])
		}
	}
	t.Log(decided, overruled)
}

// randomView returns any view at all, likely or not: few of its parts are as in a run that goes on.
func randomView(r *rand.Rand) view {
	v := randomRun(r)
	switch r.IntN(32) {
	case 0:
		v.Propose = consensus.CloseRound{Generation: 3, From: 30}
	case 1:
		v.Meets = true
	case 2:
		v.Saving = true
	case 3:
		v.Over = "the plan has ended with the outer step of step 30"
	case 4:
		v.Lost = "the outer step of step 30 was not saved"
	}
	return v
}

// randomCharges are few in a calm run.
func randomCharges(r *rand.Rand, peers []plan.PeerID, calm int) (c charges) {
	one := func(in int) bool { return r.IntN(in) == 0 }
	odd := func(in int) bool { return one(in * calm) }
	c.Trial = blame.Trial{Owners: peers[:r.IntN(2)], Faults: map[plan.PeerID]int{}, Name: func(p plan.PeerID) string { return string(p) }, Active: 3}
	kinds := []plan.FaultKind{plan.LostLink, plan.LostLink, plan.NoProgress, plan.BadTensor}
	for odd(2) {
		said := accusation{By: peers[r.IntN(5)], Fault: plan.Fault{Accused: peers[r.IntN(5)], Kind: kinds[r.IntN(4)], Step: 30}}
		c.Trial.Accusations = append(c.Trial.Accusations, said)
	}
	if one(3) {
		c.Trial.Lively = map[plan.PeerID]bool{"a": true, "b": true, "c": true, "d": true}
	}
	c.Ruled = one(3)
	if odd(8) {
		c.Jump = blame.Ruling{Blame: consensus.Blame{Kind: plan.LossJump, Peer: "b"}, Out: true}
	}
	if odd(8) {
		c.Restarts = blame.Ruling{Blame: consensus.Blame{Kind: plan.NoProgress, Peer: "c"}, Out: true}
	}
	if odd(8) {
		c.Dispute = blame.Ruling{Blame: consensus.Blame{Kind: plan.BadSum, Peer: "a"}, Out: true}
	}
	if odd(8) {
		c.Ended = "the loss jumped"
	}
	return c
}

// randomRun is randomView of a run whose replicas, if any, make every step together.
func randomRun(r *rand.Rand) view {
	one := func(in int) bool { return r.IntN(in) == 0 }
	calm := 1 + 9*r.IntN(2)
	odd := func(in int) bool { return one(in * calm) }
	peers := []plan.PeerID{"a", "b", "c", "d", "e"}
	v := view{Checkpoint: plan.Step(28 + r.IntN(6)), MinNodes: r.IntN(4), MinDevices: r.IntN(5), Names: map[plan.PeerID]string{"a": "desk"}}
	if !one(6) {
		v.Plan = randomPlan(r, peers, worldLayers)
		if one(3) {
			v.Plan = twins()
		}
	}
	v.Newest = plan.Step(28 + r.IntN(8))
	for _, p := range peers {
		if one(4) {
			continue
		}
		m := memberView{Peer: p, Active: !one(5), Restarted: odd(15), Ended: odd(40), Devices: r.IntN(3)}
		m.Leaving = !m.Active && one(2)
		if odd(8) {
			m.Silent = time.Duration(r.IntN(18_000)) * time.Millisecond
		}
		if one(2) {
			m.Suspicious, m.Lost = 2*time.Second, 3*time.Second+time.Duration(r.IntN(4))*time.Second
		}
		if odd(8) {
			m.Unheard, m.Suspicious = true, unheardFor
		}
		v.Members = append(v.Members, m)
	}
	if odd(20) { // all were started again, or are away
		for i := range v.Members {
			v.Members[i].Restarted = true
		}
	}
	if odd(8) {
		v.Unheld, v.RedoTime = &consensus.LayerRef{Layer: 1, Holders: []plan.PeerID{"e"}}, time.Duration(r.IntN(90))*time.Second
	}
	if odd(8) {
		v.Absent = absentHolders{Layers: []consensus.LayerRef{{Layer: 1, Holders: []plan.PeerID{"e"}}}, Back: plan.Step(r.IntN(2) * 10), Over: one(2), Self: "a"}
	}
	v.Ending, v.Returning, v.Orphaned = one(8), one(2), one(3)
	v.Finished = v.Ending && !v.Returning && one(2)
	if odd(4) {
		v.Carried = carried{peers[r.IntN(5)], peers[r.IntN(5)]}
	}
	if odd(2) {
		v.Better = "another helps"
	}
	v.Copying, v.CopiesFor = one(2), time.Duration(r.IntN(4))*time.Minute
	if odd(3) {
		v.Entering = time.Duration(r.IntN(20)) * time.Second
	}
	v.Paused, v.Saved = odd(3), odd(3)
	v.PausedFor, v.SavePatience = time.Duration(r.IntN(4))*time.Minute, time.Minute
	if odd(2) {
		v.Stall = stall{Stall: gossip.Stall{For: time.Duration(r.IntN(6)) * time.Second, Why: "lost", Lacks: one(5)}, Patience: 3 * time.Second, Alone: one(4), Plans: r.IntN(10)}
		v.Stall.By = slices.DeleteFunc(slices.Clone(peers), func(plan.PeerID) bool { return one(4) })
	}
	v.Stall.Fallback = plan.Step(r.IntN(2) * 20)
	v.charges = randomCharges(r, peers, calm)
	if odd(3) {
		v.Replayers = map[plan.PeerID][]plan.PeerID{peers[r.IntN(5)]: {peers[r.IntN(5)]}}
	}
	if !v.broken() {
		return v
	}
	v.Layers, v.BrokenFor, v.Salvages = worldLayers, time.Duration(r.IntN(4))*time.Second, r.IntN(mostSalvages+1)
	for i, pipe := range v.Plan.Replicas {
		for s, place := range pipe.Stages {
			o := offer{By: place.Peer, StageID: plan.StageID{Replica: plan.Replica(i), Stage: plan.Stage(s)}, Step: plan.Step(33 + r.IntN(2))}
			if one(4) {
				o.By, o.Replay, o.Step, o.From = peers[r.IntN(5)], true, 0, v.Checkpoint
			}
			if !one(4) {
				v.Offers = append(v.Offers, o)
			}
		}
	}
	if best, ok := salvageOf(v.Plan, v.Layers, 30, v.Offers); ok && one(2) {
		v.Salvage, v.SalvagedFor, v.Stored = &best, time.Duration(r.IntN(3))*time.Minute, map[int]bool{0: one(2), 3: one(2)}
	}
	return v
}
