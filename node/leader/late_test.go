package leader

import (
	"testing"
	"time"

	"pnode/node/gossip"
	"pnode/planner"
	"pnode/planner/plan"
	"pnode/swarm/consensus/rounds"
)

// TestWhoKeepsARoundWaiting: a replica that has not handed in when its round is closed counts with the time of the inner step under way where the others
// go on without it, and with what it reports of that step where it ends it, in the next round, too.
func TestWhoKeepsARoundWaiting(t *testing.T) {
	for name, c := range map[string]struct {
		closes, handsIn, leavesOut, merges, ends bool // by the slow one's step, or its end
		want                                     int64
	}{
		"in time":                   {handsIn: true, want: 1000},
		"in time, a round closed":   {closes: true, handsIn: true, want: 1000},
		"left out":                  {closes: true, leavesOut: true, want: 16_000},
		"ends the step":             {closes: true, ends: true, want: 4000},
		"ends it after the round":   {closes: true, merges: true, ends: true, want: 4000},
		"has yet to, in a new one":  {closes: true, merges: true, want: 1000},
		"a slow step, but no close": {ends: true, want: 1000},
	} {
		p := newPaced(t, "a", "b")
		p.apart()
		for _, step := range []plan.Step{1, 2, 3} {
			p.tell("a", step, 1000, false)
			p.tell("b", step, 1000, false)
		}
		p.tell("a", 4, 1000, true)
		if p.now = p.now.Add(4 * time.Second); c.handsIn {
			p.tell("b", 4, 1000, true)
		}
		if c.closes {
			*p.state.Round = p.state.Round.Close()
			p.look(p.state, p.now)
		}
		if p.now = p.now.Add(10 * time.Second); c.merges {
			p.state.Round = &rounds.Round{From: 4, End: 8, Gathered: make([][]plan.Part, 2)}
			p.state.Merged = &plan.Merged{Generation: p.state.Plan.Generation, To: 4, Parts: []plan.Part{{Steps: 4}, {Steps: 4}}}
			p.look(p.state, p.now)
		}
		if c.leavesOut {
			p.state.Round, p.state.Merged = nil, &plan.Merged{Generation: p.state.Plan.Generation, To: 4, Parts: []plan.Part{{Steps: 4}, {}}}
			p.look(p.state, p.now)
		}
		if c.ends {
			p.tell("b", 4, 4000, true)
		}
		if got := p.of("b"); got != c.want || p.of("a") != 1000 {
			t.Errorf("%s: it counts %d, the other one %d, want %d and 1000", name, got, p.of("a"), c.want)
		}
	}
}

// apart gives both a replica with local steps.
func (p *paced) apart() {
	p.Helper()
	p.state.Run.Train.Stages, p.state.Run.Train.Replicas = 1, 2
	p.state.Run.Train.Sync = plan.SyncRule{Local: true, Every: 4}
	made, _, err := planner.Make(p.Context(), NextInput(p.state))
	if err != nil || made.Local == nil {
		p.Fatalf("%+v, %v", made, err)
	}
	p.state.Plan, p.state.Round = made, rounds.First(*p.state.Run, made)
	p.now = time.Unix(0, 0)
	p.look(p.state, p.now)
}

// tell has a member say that an inner step has taken so many thousandths of what it should, which is a second, and whether it has handed in.
func (p *paced) tell(peer plan.PeerID, step plan.Step, permille int64, handed bool) {
	p.Helper()
	computing, err := planner.Computing(NextInput(p.state), p.state.Plan)
	if err != nil {
		p.Fatal(err)
	}
	at := p.state.Plan.StagesOf(plan.WorkerID{Peer: peer, Device: p.state.Members[0].Profile.Devices[0].Name})[0]
	b := gossip.Heartbeat{Peer: peer, Generation: p.state.Plan.Generation, StepNanos: 1e6 * permille, Inner: []gossip.InnerStep{{Replica: at.Replica, Step: step}}}
	for w, nanos := range computing {
		if w.Peer == peer {
			b.Stages = []gossip.StageTimes{{Replica: at.Replica, ForwardNanos: nanos * permille / 1000}}
		}
	}
	if handed {
		b.HandedIn = []gossip.HandedIn{{Generation: b.Generation, From: 0, Replica: at.Replica, Steps: step}}
	}
	p.now = p.now.Add(time.Second)
	p.beats.Note(b, p.now)
	p.look(p.state, p.now)
}
