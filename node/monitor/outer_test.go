package monitor

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pnode/node/api"
	"pnode/node/gossip"
	"pnode/pipeline/meeting"
	"pnode/pipeline/model"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
	"pnode/swarm/consensus/rounds"
)

// apartRun has what a node knows of three replicas, the second of two nodes, in rounds of 4 steps: the one after step 8 is under way.
type apartRun struct {
	state consensus.State
	beats *gossip.Tracker
	now   time.Time
	// against are of the next outer step.
	against []plan.Contradiction
}

func newApartRun() *apartRun {
	run := plan.RunSpec{
		Model: model.Config{Vocab: 64, Context: 16, Blocks: 2, Heads: 2, Channels: 16},
		Train: plan.TrainSpec{Steps: 20, Micros: 4, MicroBatch: 2},
	}
	p := plan.Plan{Generation: 3, Start: 4, Local: &plan.Local{Rounds: plan.Rounds{Every: 4, Fragments: 1}, Codec: "int8"}}
	for r, peers := range [][]plan.PeerID{{"a"}, {"b", "c"}, {"d"}} {
		pipe := plan.Pipeline{FirstMicro: plan.Micro(r), Micros: 1 + r/2}
		for i, peer := range peers {
			pipe.Stages = append(pipe.Stages, plan.Placement{Peer: peer, Device: "cpu", Layers: plan.LayerRange{First: 2 * i, End: 2*i + 2}})
		}
		p.Replicas = append(p.Replicas, pipe)
	}
	x := &apartRun{state: consensus.State{Run: &run, Plan: p}, beats: gossip.NewTracker(), now: time.Unix(1000, 0)}
	for i, name := range []string{"desk", "attic", "cellar", "laptop"} {
		x.state.Members = append(x.state.Members, consensus.Member{Peer: plan.PeerID("abcd"[i : i+1]), Label: name, State: consensus.Active})
	}
	x.state.Round = rounds.First(run, p)
	x.state.Round.From, x.state.Round.End = 8, 12
	return x
}

// says takes in a heartbeat of this moment.
func (x *apartRun) says(b gossip.Heartbeat) {
	b.Generation = 3
	x.beats.Note(b, x.now)
}

func (x *apartRun) view() roundView { return roundView{x.state, x.beats, x.now} }

func handedIn(r plan.Replica, lacks ...plan.Replica) []gossip.HandedIn {
	return []gossip.HandedIn{{Generation: 3, From: 8, Replica: r, Steps: 4, Lacks: lacks}}
}

// TestWhatReplicasDo within a round, and who is waited for.
func TestWhatReplicasDo(t *testing.T) {
	computes := func(x *apartRun) {
		x.says(gossip.Heartbeat{Peer: "a", Inner: []gossip.InnerStep{{Replica: 0, Step: 11, Loss: 3.5, Nanos: 1e9}}})
		x.says(gossip.Heartbeat{Peer: "c", Inner: []gossip.InnerStep{{Replica: 1, Step: 10, Loss: 3.25, Nanos: 2e9}}})
		x.says(gossip.Heartbeat{Peer: "d"})
	}
	for name, c := range map[string]struct {
		happens func(x *apartRun)
		want    string // a line for each replica, the round, and why the node of replica 0 stands still
	}{
		"all make inner steps": {computes, "0: 3 of 4, loss 3.50, 32 tokens/s, computes: makes inner steps\n" +
			"1: 2 of 4, loss 3.25, 16 tokens/s, computes: makes inner steps\n" +
			"2: 0 of 4, loss 0.00, 0 tokens/s, computes: makes inner steps\n" +
			"steps 9 to 12: all replicas make inner steps\n"},
		"one has ended its part": {func(x *apartRun) {
			computes(x)
			x.says(gossip.Heartbeat{Peer: "a", HandedIn: handedIn(0, 1, 2), Inner: []gossip.InnerStep{{Replica: 0, Step: 12, Loss: 3.5}}})
			x.beats.Note(gossip.Heartbeat{Peer: "d"}, x.now.Add(-time.Minute))
			x.now = x.now.Add(time.Second)
		}, "0: 4 of 4, loss 3.50, 0 tokens/s, ended: has ended its part, and waits for what replica 1 (cellar) and replica 2 (laptop) learned\n" +
			"1: 2 of 4, loss 3.25, 16 tokens/s, computes: makes inner steps\n" +
			"2: 0 of 4, loss 0.00, 0 tokens/s, silent: not heard of for 1 min 1 s\n" +
			"steps 9 to 12: replica 0 (desk) waits for replica 1 (cellar), at 2 of 4 inner steps and replica 2 (laptop), not heard of for 1 min 1 s\n" +
			"the outer step of steps 9 to 12 is not made yet: replica 0 (desk) waits for replica 1 (cellar), at 2 of 4 inner steps and replica 2 (laptop), not heard of for 1 min 1 s"},
		"messages are on their way": {func(x *apartRun) {
			x.says(gossip.Heartbeat{Peer: "a", HandedIn: handedIn(0, 1)})
			x.says(gossip.Heartbeat{Peer: "c", HandedIn: handedIn(1)})
			x.says(gossip.Heartbeat{Peer: "d", HandedIn: handedIn(2)})
		}, "0: 0 of 4, loss 0.00, 0 tokens/s, ended: has ended its part, and waits for what replica 1 (cellar) learned\n" +
			"1: 0 of 4, loss 0.00, 0 tokens/s, ended: has ended its part\n" +
			"2: 0 of 4, loss 0.00, 0 tokens/s, ended: has ended its part\n" +
			"steps 9 to 12: messages are on their way: replica 0 (desk) lacks what replica 1 (cellar) learned\n" +
			"the outer step of steps 9 to 12 is not made yet: messages are on their way: replica 0 (desk) lacks what replica 1 (cellar) learned"},
		"one is left out, the round is closed": {func(x *apartRun) {
			computes(x)
			x.says(gossip.Heartbeat{Peer: "a", HandedIn: handedIn(0, 2)})
			x.state.Round.LeftOut = []rounds.LeftOut{{Replica: 2, Reason: "its process has ended"}}
			x.state.Round.Closed = true
			x.state.Round.Gathered[1] = make([]plan.Part, 3)
		}, "0: 0 of 4, loss 0.00, 0 tokens/s, ended: has ended its part\n" +
			"1: 2 of 4, loss 3.25, 16 tokens/s, ended: has ended its part\n" +
			"2: 0 of 4, loss 0.00, 0 tokens/s, left out: is not waited for: its process has ended\n" +
			"steps 9 to 12, ended early: all have what the others learned: the log says who counts\n" +
			"the outer step of steps 9 to 12 is not made yet: all have what the others learned: the log says who counts"},
		"nobody is heard of": {func(*apartRun) {}, "0: 0 of 4, loss 0.00, 0 tokens/s, silent: was not heard of so far\n" +
			"1: 0 of 4, loss 0.00, 0 tokens/s, silent: was not heard of so far\n" +
			"2: 0 of 4, loss 0.00, 0 tokens/s, silent: was not heard of so far\n" +
			"steps 9 to 12: all replicas make inner steps\n"},
		"the plan has ended": {func(x *apartRun) {
			computes(x)
			x.state.Round = nil
		}, "0: 0 of 0, loss 3.50, 32 tokens/s, ended: has ended with the plan\n" +
			"1: 0 of 0, loss 3.25, 16 tokens/s, ended: has ended with the plan\n" +
			"2: 0 of 0, loss 0.00, 0 tokens/s, ended: has ended with the plan\n" +
			"\nthe plan has ended with its newest outer step, and another one follows"},
	} {
		x := newApartRun()
		c.happens(x)
		var b strings.Builder
		for _, s := range x.view().replicas() {
			fmt.Fprintf(&b, "%d: %d of %d, loss %.2f, %.0f tokens/s, %s: %s\n", s.Replica, s.Made, s.Of, s.Loss, s.TokensPerS, s.State, s.Text)
		}
		if r := x.view().round(); r != nil {
			b.WriteString(r.Text)
		}
		b.WriteString("\n" + x.view().standsStill("a", time.Minute))
		if got := b.String(); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, c.want)
		}
	}
	x := newApartRun()
	x.says(gossip.Heartbeat{Peer: "a", HandedIn: handedIn(0), Met: []gossip.Met{{WaitedNanos: 40e9}}})
	if got := x.view().standsStill("a", time.Minute); got != "" {
		t.Errorf("what the newest outer step took is usual, and yet: %s", got)
	}
	x.state.Plan.Local = nil
	if x.view().replicas() != nil || x.view().round() != nil || x.view().standsStill("a", time.Hour) != "" {
		t.Error("replicas without local steps are in a round")
	}
}

// TestWhatIsDoneOnceAllStepsAreMade, until the log says that the run is over.
func TestWhatIsDoneOnceAllStepsAreMade(t *testing.T) {
	x := newApartRun()
	x.state.Merged = &plan.Merged{Generation: 3, From: 8, To: 12}
	if got := x.view().ends(19); got != "" {
		t.Error(got)
	}
	const want = "all 20 steps are made: the finished model is evaluated and saved"
	if got := x.view().ends(20); got != want {
		t.Error(got)
	}
	x.state.Merged.To = 20
	if got := x.view().ends(12); got != want {
		t.Error(got)
	}
	x.state.Finished = true
	if got := x.view().ends(20); got != "" {
		t.Error(got)
	}
}

// merge has the log make the outer step after step 8, with so many inner steps of each replica.
func (x *apartRun) merge(steps ...plan.Step) {
	x.state.Merged = &plan.Merged{Generation: 3, From: 8, To: 12, Contradictions: x.against}
	for _, n := range steps {
		x.state.Merged.Parts = append(x.state.Merged.Parts, plan.Part{Steps: n})
	}
	next := *x.state.Round
	next.From, next.End, next.LeftOut = 12, 16, nil
	x.state.Round = &next
}

// met returns a heartbeat with the outer step after step 8.
func met(r plan.Replica, waited time.Duration, squares, dots []float64) gossip.Heartbeat {
	return gossip.Heartbeat{Met: []gossip.Met{{
		Generation: 3, From: 8, Replica: r, Stages: 1, SentBytes: 100, RoundNanos: 40e9, WaitedNanos: waited.Nanoseconds(), HiddenNanos: 5e8,
		Spread: meeting.Spread{Mean: 0.5, Squares: squares, Dots: dots},
	}}}
}

// from names the sender of a heartbeat.
func from(peer plan.PeerID, b gossip.Heartbeat) gossip.Heartbeat {
	b.Peer = peer
	return b
}

// isShown has the log make an outer step of which something is heard, and wants it shown once. Unless all is heard, that is late.
func (x *apartRun) isShown(t *testing.T, steps []plan.Step, after func(x *apartRun), late bool, want string) {
	t.Helper()
	var w outerWatch
	if w.follow(x.state, x.beats, "a", x.now) != nil || w.status(x.beats, "a") != nil {
		t.Error("shown before any")
	}
	x.merge(steps...)
	if w.follow(x.state, x.beats, "a", x.now) != nil || w.show(x.beats, "a", x.now, false) != nil {
		t.Error("shown before anything was heard")
	}
	after(x)
	got := w.show(x.beats, "a", x.now, false)
	if (got == nil) != late {
		t.Fatalf("shown: %+v", got)
	}
	if late {
		got = w.show(x.beats, "a", x.now.Add(outerPatience), false)
	}
	if got.Text != want {
		t.Errorf("%s\nwant\n%s", got.Text, want)
	}
	if quiet := !strings.Contains(want, "without") && !strings.Contains(want, "far"); got.Quiet() != quiet {
		t.Errorf("like most: %t", got.Quiet())
	}
	if w.show(x.beats, "a", x.now.Add(time.Hour), true) != nil || w.follow(x.state, x.beats, "a", x.now) != nil {
		t.Error("shown again")
	}
	for _, peer := range []plan.PeerID{"a", "b", "c", "d"} { // the next outer step is heard of
		x.says(gossip.Heartbeat{Peer: peer})
	}
	if now := w.status(x.beats, "a"); now.Text != want {
		t.Errorf("in the status it is %s", now.Text)
	}
	if b, err := json.Marshal(outerEvent(*got)); err != nil || strings.Count(string(b), `"outer"`) != 2 {
		t.Errorf("%s, %v", b, err)
	}
}

// TestOuterStepsAreShown once each, when all is heard of them or late enough, with who was left out and who is far from the others.
func TestOuterStepsAreShown(t *testing.T) {
	near := []float64{1, 1.2, 0.9}
	along := []float64{0.6, 0.7, 0.65}
	all := func(x *apartRun, squares, dots []float64) {
		x.says(from("a", met(0, time.Second, squares, dots)))
		x.says(from("b", met(1, 4*time.Second, squares, dots)))
		x.says(from("c", met(1, 4*time.Second, squares, dots)))
		x.says(from("d", met(2, 7*time.Second, squares, dots)))
	}
	for name, c := range map[string]struct {
		before, after func(x *apartRun)
		steps         []plan.Step
		late          bool // not all is heard
		want          string
	}{
		"all count": {
			nil, func(x *apartRun) { all(x, near, along) },
			[]plan.Step{4, 4, 4},
			false,
			"steps 9 to 12 of 3 replicas, drift 1.0; 15.9 KiB from each in 1 s; replicas stood still for 10.0% of the round",
		},
		"one is left out": {
			func(x *apartRun) {
				x.state.Round.LeftOut = []rounds.LeftOut{{Replica: 2, Reason: "its process has ended"}}
			}, func(x *apartRun) { all(x, []float64{1, 1, 0}, []float64{0.7, 0.7, 0}) },
			[]plan.Step{4, 3, 0},
			false,
			"steps 9 to 12 of 2 of 3 replicas, drift 1.0; 15.9 KiB from each in 1 s; replicas stood still for 6.2% of the round; without replica 2 (laptop): its process has ended",
		},
		"others have other messages": {
			nil, func(x *apartRun) { all(x, []float64{1, 1, 0}, []float64{0.7, 0.7, 0}) },
			[]plan.Step{4, 4, 0},
			false,
			"steps 9 to 12 of 2 of 3 replicas, drift 1.0; 15.9 KiB from each in 1 s; replicas stood still for 6.2% of the round; without replica 2 (laptop): not all others have the same messages of it",
		},
		"one contradicts others": {
			func(x *apartRun) { x.against = []plan.Contradiction{{By: 0, Of: 2}, {By: 2, Of: 1}, {By: 2, Of: 0}} },
			func(x *apartRun) { all(x, []float64{1, 1, 0}, []float64{0.7, 0.7, 0}) },
			[]plan.Step{4, 4, 0},
			false,
			"steps 9 to 12 of 2 of 3 replicas, drift 1.0; 15.9 KiB from each in 1 s; replicas stood still for 6.2% of the round; without replica 2 (laptop): it contradicts replica 0 (desk) and replica 1 (cellar), or they it, on what was sent",
		},
		"one is large": {
			nil, func(x *apartRun) { all(x, []float64{1, 1, 25}, along) },
			[]plan.Step{4, 4, 4},
			false,
			"steps 9 to 12 of 3 replicas, drift 5.0; 15.9 KiB from each in 1 s; replicas stood still for 10.0% of the round; replica 2 (laptop) is far from the others: what it learned is 5.0 times as large as what most did",
		},
		"one is small": {
			nil, func(x *apartRun) { all(x, []float64{1, 1, 0}, []float64{0.7, 0.7, 0}) },
			[]plan.Step{4, 4, 4},
			false,
			"steps 9 to 12 of 3 replicas, drift 0.00; 15.9 KiB from each in 1 s; replicas stood still for 10.0% of the round; replica 2 (laptop) is far from the others: what it learned is 0.00 times as large as what most did",
		},
		"one was small, as it made one step": {
			nil, func(x *apartRun) { all(x, []float64{1, 1, 0.01}, []float64{0.7, 0.7, 0.05}) },
			[]plan.Step{4, 4, 1},
			false,
			"steps 9 to 12 of 3 replicas, drift 0.78; 15.9 KiB from each in 1 s; replicas stood still for 10.0% of the round",
		},
		"one goes elsewhere": {
			nil, func(x *apartRun) { all(x, []float64{1, 1, 1}, []float64{0.65, 0.65, 0.51}) },
			[]plan.Step{4, 4, 4},
			false,
			"steps 9 to 12 of 3 replicas, drift 1.0; 15.9 KiB from each in 1 s; replicas stood still for 10.0% of the round; replica 2 (laptop) is far from the others: the cosine of what it learned with what the others did is 0.02, most have 0.82",
		},
		"one says nothing": {
			nil, func(x *apartRun) {
				x.says(from("a", met(0, time.Second, near, along)))
				x.says(from("c", met(1, 4*time.Second, near, along)))
			},
			[]plan.Step{4, 4, 4},
			true,
			"steps 9 to 12 of 3 replicas, drift 1.0; 15.9 KiB from each in 1 s; replicas stood still for 2.5% of the round",
		},
		"nobody says anything": {nil, func(*apartRun) {}, []plan.Step{4, 4, 4}, true, "steps 9 to 12 of 3 replicas; 15.9 KiB from each"},
	} {
		t.Run(name, func(t *testing.T) {
			x := newApartRun()
			if c.before != nil {
				c.before(x)
			}
			x.isShown(t, c.steps, c.after, c.late, c.want)
		})
	}
}

// TestOuterStepsOfBefore this process are in the status and no event, and one that another follows at once is shown with what is known.
func TestOuterStepsOfBefore(t *testing.T) {
	x, w := newApartRun(), outerWatch{}
	x.merge(4, 4, 4)
	if w.follow(x.state, x.beats, "a", x.now) != nil || w.show(x.beats, "a", x.now.Add(time.Hour), true) != nil {
		t.Error("an outer step of a process before is shown")
	}
	if s := w.status(x.beats, "a"); s == nil || s.From != 8 || s.To != 12 || len(s.Replicas) != 3 {
		t.Errorf("%+v", s)
	}
	next := *x.state.Merged
	next.From, next.To = 12, 16
	x.state.Merged = &next
	if w.follow(x.state, x.beats, "a", x.now) != nil {
		t.Error("it is shown late")
	}
	last := next
	last.From, last.To = 16, 20
	x.state.Merged = &last
	if got := w.follow(x.state, x.beats, "a", x.now); got == nil || got.To != 16 {
		t.Errorf("%+v", got)
	}
	if got := w.show(x.beats, "a", x.now, true); got == nil || got.To != 20 {
		t.Errorf("%+v", got)
	}
}

// TestLateOuterSteps: replicas that make inner steps while messages travel wait for nobody, and what they say of the outer step is waited for until they have made it.
func TestLateOuterSteps(t *testing.T) {
	x, w := newApartRun(), outerWatch{}
	x.state.Plan.Local.Delay = 2
	at := func(step plan.Step) {
		for r, peer := range []plan.PeerID{"a", "c", "d"} {
			x.says(gossip.Heartbeat{Peer: peer, Inner: []gossip.InnerStep{{Replica: plan.Replica(r), Step: step}}, HandedIn: handedIn(plan.Replica(r))})
		}
	}
	at(13)
	const text = "makes inner steps of the next round while messages travel"
	if s := x.view().replica(1); s.State != api.ReplicaComputes || s.Text != text || s.Made != 4 || x.view().waits() != "" || x.view().standsStill("a", time.Hour) != "" {
		t.Errorf("%+v, who waits: %q, %q", s, x.view().waits(), x.view().standsStill("a", time.Hour))
	}
	if at(14); x.view().replica(1).Text == text || x.view().standsStill("a", time.Hour) == "" {
		t.Error("nobody waits for messages that are late")
	}
	at(13)
	w.follow(x.state, x.beats, "a", x.now)
	x.merge(4, 4, 4)
	w.follow(x.state, x.beats, "a", x.now)
	for range 3 {
		if x.now = x.now.Add(outerPatience); w.show(x.beats, "a", x.now, false) != nil {
			t.Fatal("shown before it is made")
		}
	}
	if at(14); w.show(x.beats, "a", x.now, false) != nil || w.show(x.beats, "a", x.now.Add(outerPatience), false) == nil {
		t.Error("not shown once it is made, and nobody has said how it was")
	}
}

// TestBytesBetweenReplicas: of the messages by the plan, against sums of gradients in every step.
func TestBytesBetweenReplicas(t *testing.T) {
	x, w := newApartRun(), outerWatch{}
	w.follow(x.state, x.beats, "a", x.now)
	x.merge(4, 4, 4)
	w.follow(x.state, x.beats, "a", x.now)
	x.says(from("a", met(0, time.Second, []float64{1, 1, 1}, []float64{1, 1, 1})))
	got := w.status(x.beats, "a")
	run := *x.state.Run
	learned := run.Model.Params()
	each := got.Bytes / 6 // a message of each of 3 replicas for 2 others
	if float64(each) < float64(learned) || float64(each) > float64(learned)*1.1 || got.SentBytes != 100 {
		t.Errorf("messages of %d bytes in int8 for %d parameters, %d sent here", each, learned, got.SentBytes)
	}
	tokens := 4.0 * 4 * 2 * 16
	if want := float64(got.Bytes) / tokens; got.BytesPerToken != want {
		t.Errorf("%v bytes a token, want %v", got.BytesPerToken, want)
	}
	if want := 2 * 2 * 4 * float64(learned) / (4 * 2 * 16); math.Abs(got.EveryStepBytesPerToken/want-1) > 1e-9 {
		t.Errorf("%v bytes a token in every step, want %v", got.EveryStepBytesPerToken, want)
	}
}
