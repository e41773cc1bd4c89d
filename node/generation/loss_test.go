package generation

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pnode/node/gossip"
	"pnode/pipeline/link"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// TestWhyAGenerationCannotGoOn: what the log and heartbeats say of the members of a plan, to the first of them.
func TestWhyAGenerationCannotGoOn(t *testing.T) {
	gone := func(s *consensus.State, i int) { s.Members[i].State = consensus.Gone }
	stalled := func(g *Generation, kind plan.FaultKind) {
		g.Heartbeats.Note(gossip.Heartbeat{Peer: "b", Generation: 1, Stalled: 1, Fault: &plan.Fault{Accused: "c", Kind: kind}}, time.Now())
	}
	for name, c := range map[string]struct {
		happens func(*Generation, *consensus.State)
		left    bool        // another member ends it
		accused plan.PeerID // for want of this one
	}{
		"all are there":         {func(*Generation, *consensus.State) {}, false, ""},
		"one is gone":           {func(_ *Generation, s *consensus.State) { gone(s, 1) }, false, "b"},
		"one was started again": {func(_ *Generation, s *consensus.State) { s.Members[1].Since = 6 }, false, "b"},
		"another one does its part": {func(_ *Generation, s *consensus.State) {
			gone(s, 1)
			s.Substitute = &consensus.Substitute{Lost: "b", By: "c"}
		}, false, ""},
		"another one does this one's": {func(_ *Generation, s *consensus.State) {
			gone(s, 0)
			s.Substitute = &consensus.Substitute{Lost: "a", By: "c"}
		}, false, "a"},
		"another has lost a link":   {func(g *Generation, _ *consensus.State) { stalled(g, plan.LostLink) }, true, ""},
		"another has found a fault": {func(g *Generation, _ *consensus.State) { stalled(g, plan.BadTensor) }, false, ""},
		"what is left is wanted":    {func(_ *Generation, s *consensus.State) { s.Salvage = &consensus.Salvage{Generation: 1} }, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			state := consensus.State{PlanEpoch: 5, Plan: plan.Plan{Generation: 1, Replicas: []plan.Pipeline{{}}}}
			for _, peer := range []plan.PeerID{"a", "b", "c"} {
				state.Plan.Replicas[0].Stages = append(state.Plan.Replicas[0].Stages, plan.Placement{Peer: peer})
				state.Members = append(state.Members, consensus.Member{Peer: peer, State: consensus.Active, Since: 5})
			}
			g := &Generation{Parts: Parts{Self: "a", Heartbeats: gossip.NewTracker(), Newest: func() plan.Step { return 7 }}, plan: state.Plan}
			c.happens(g, &state)
			err := g.loss(state)
			var without LostPeerError
			accused := plan.PeerID("")
			if errors.As(err, &without) {
				accused = without.fault.Accused
			}
			if errors.Is(err, link.ErrLeft) != c.left || accused != c.accused || err != nil && !c.left && c.accused == "" || c.accused == g.Self && !strings.Contains(err.Error(), "counted this node as gone") {
				t.Errorf("it ends with %v", err)
			}
		})
	}
}

// TestOtherReplicasAreForTheLog: of replicas with local steps the members of one's own alone are needed.
func TestOtherReplicasAreForTheLog(t *testing.T) {
	for i, ends := range []bool{true, true, false, false} {
		state := consensus.State{PlanEpoch: 5, Plan: plan.Plan{Generation: 1, Local: &plan.Local{}, Replicas: make([]plan.Pipeline, 2)}}
		for i, peer := range []plan.PeerID{"a", "b", "c", "d"} {
			pipe := &state.Plan.Replicas[i/2]
			pipe.Stages = append(pipe.Stages, plan.Placement{Peer: peer})
			state.Members = append(state.Members, consensus.Member{Peer: peer, State: consensus.Active, Since: 5})
		}
		g := &Generation{Parts: Parts{Self: "a", Heartbeats: gossip.NewTracker(), Newest: func() plan.Step { return 7 }}, plan: state.Plan}
		if err := g.loss(state); err != nil {
			t.Fatal(err)
		}
		peer := state.Members[i].Peer
		g.Heartbeats.Note(gossip.Heartbeat{Peer: peer, Generation: 1, Stalled: 1, Fault: &plan.Fault{Accused: "b", Kind: plan.LostLink}}, time.Now())
		if err := g.loss(state); (err != nil) != (i == 1) { // what it says itself it knows
			t.Errorf("%s has lost a link: it ends with %v", peer, err)
		}
		state.Members[i].State = consensus.Gone
		if err := g.loss(state); (err != nil) != ends {
			t.Errorf("%s is gone: it ends with %v", peer, err)
		}
	}
}

// TestWhatIsGoodAfterAnError: the state of workers that ended since another peer was lost, or made no progress.
func TestWhatIsGoodAfterAnError(t *testing.T) {
	for _, c := range []struct {
		err  error
		good bool
	}{
		{nil, true},
		{LostPeerError{"b", &plan.Fault{Accused: "b", Kind: plan.LostLink}}, true},
		{&plan.Fault{Accused: "b", Kind: plan.NoProgress}, true},
		{&plan.Fault{Accused: "a", Kind: plan.LostLink}, false},
		{&plan.Fault{Accused: "b", Kind: plan.BadTensor}, false},
		{fmt.Errorf("a frame: %w", link.ErrLost), true},
		{errGivenUp, true},
		{ErrReplaced, false},
	} {
		if retains(c.err, "a") != c.good {
			t.Errorf("%v: good is %t", c.err, !c.good)
		}
	}
}

// TestASubstituteAnswersForItsWork: what is wrong with its own results in the lost member's place is its fault, and no link is.
func TestASubstituteAnswersForItsWork(t *testing.T) {
	s := standIn{Generation: &Generation{Parts: Parts{Self: "a"}}, of: consensus.Substitute{Lost: "b", By: "a"}}
	for _, c := range []struct {
		accused plan.PeerID
		kind    plan.FaultKind
		want    plan.PeerID
	}{{"b", plan.BadTensor, "a"}, {"b", plan.BadParameters, "a"}, {"b", plan.LostLink, "b"}, {"c", plan.BadTensor, "c"}} {
		err := s.answers(fmt.Errorf("step 4: %w", &plan.Fault{Accused: c.accused, Kind: c.kind}))
		if fault := (*plan.Fault)(nil); !errors.As(err, &fault) || fault.Accused != c.want {
			t.Errorf("of a fault %q of %s: %s is accused, want %s", c.kind, c.accused, fault.Accused, c.want)
		}
	}
}
