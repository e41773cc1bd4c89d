package node

import (
	"slices"
	"testing"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// TestDelivery: what has the nodes of a finished run end, and where they say that the model is.
func TestDelivery(t *testing.T) {
	const limit = time.Minute
	base := consensus.State{
		Run: &plan.RunSpec{Train: plan.TrainSpec{Steps: 9, AwaitOwnerS: int64(limit / time.Second)}}, Finished: true,
		Owners: []plan.PeerID{"owner"},
		Checkpoint: consensus.Checkpoint{Step: 9, Generation: 2, Layers: []consensus.LayerRef{
			{Layer: 0, Holders: []plan.PeerID{"a", "b"}}, {Layer: 1, Holders: []plan.PeerID{"b"}},
		}},
	}
	for _, p := range []plan.PeerID{"a", "b", "owner", "second"} {
		base.Members = append(base.Members, consensus.Member{Peer: p, State: consensus.Active})
	}
	ownerGone := base
	ownerGone.Members = slices.Clone(base.Members)
	ownerGone.Members[2].State = consensus.Gone
	two := base
	two.Owners = []plan.PeerID{"owner", "second"}
	twoOneGone := two
	twoOneGone.Members = ownerGone.Members
	has, older, again := plan.WholeCopy{Step: 9, Generation: 2}, plan.WholeCopy{Step: 5, Generation: 2}, plan.WholeCopy{Step: 9, Generation: 1}
	none, off, full := plan.WholeCopy{}, plan.WholeCopy{Off: true}, plan.WholeCopy{Why: "the disk is full"}
	type copies = map[plan.PeerID]plan.WholeCopy
	for name, c := range map[string]struct {
		state         consensus.State
		copies        copies
		waited        time.Duration
		leaving       bool
		over, settled bool
		at            plan.PeerID
	}{
		"the owner has it":                              {state: base, copies: copies{"owner": has, "b": has}, over: true, settled: true, at: "owner"},
		"who has it too says so of itself":              {state: base, copies: copies{"owner": has, "a": has}, over: true, settled: true, at: "a"},
		"the owner has an older one":                    {state: base, copies: copies{"owner": older}},
		"the owner has one that was given up":           {state: base, copies: copies{"owner": again}},
		"another member alone has it":                   {state: base, copies: copies{"b": has}, at: "b"},
		"nobody has said anything":                      {state: base, copies: copies{"owner": none}},
		"the owner is gone":                             {state: ownerGone, copies: copies{"owner": older}},
		"the owner is gone and nothing was heard of it": {state: ownerGone},
		"the time is over":                              {state: ownerGone, waited: limit, over: true},
		"the owner keeps none":                          {state: base, copies: copies{"owner": off}, over: true, settled: true},
		"one owner keeps none, the other lacks it":      {state: two, copies: copies{"owner": off, "second": older}},
		"one owner keeps none, the other is gone":       {state: twoOneGone, copies: copies{"second": off}, over: true, settled: true},
		"one of two owners has it":                      {state: two, copies: copies{"second": has}, over: true, settled: true, at: "second"},
		"the owner has no room":                         {state: base, copies: copies{"owner": full}},
		"the owner has no room, another has":            {state: base, copies: copies{"owner": full, "b": has}, over: true, settled: true, at: "b"},
		"one owner has no room, the other will have it": {state: two, copies: copies{"owner": full, "second": older, "b": has}, at: "b"},
		"asked to leave, others have its layers":        {state: base, leaving: true, over: true},
	} {
		got := deliveryOf(deliveryView{State: c.state, Copies: c.copies, Waited: c.waited, Leaving: c.leaving, Self: "a"})
		if got.Over != c.over || got.Settled != c.settled || got.At != c.at {
			t.Errorf("%s: over %v, settled %v, at %q; want %v, %v, %q", name, got.Over, got.Settled, got.At, c.over, c.settled, c.at)
		}
	}
	if got := deliveryOf(deliveryView{State: base, Leaving: true, Self: "b"}); got.Over {
		t.Error("who alone has a layer may leave")
	}
}

// TestLeasesEnd: a checkpoint that is read stays for a while after the last read.
func TestLeasesEnd(t *testing.T) {
	var l leases
	now := time.Now()
	l.renew(5, now)
	l.renew(7, now.Add(leaseTime/2))
	if got := l.steps(now.Add(leaseTime)); !slices.Equal(got, []plan.Step{5, 7}) {
		t.Errorf("kept are %v, want 5 and 7", got)
	}
	if got := l.steps(now.Add(leaseTime + 1)); !slices.Equal(got, []plan.Step{7}) {
		t.Errorf("kept are %v, want 7", got)
	}
}
