package hearsay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pnode/node/ledger"
	"pnode/pipeline/model"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// town is a few nodes whose questions go from one to the other without a network. "w" has no part in the first plans.
type town struct {
	*testing.T
	answers map[plan.PeerID]func(request []byte) ([]byte, error)
	ledgers map[plan.PeerID]*ledger.Recorder
	state   consensus.State
	newest  plan.Step
}

// at is a node's view of the town.
type at struct {
	*town
	self plan.PeerID
}

func (a at) Ask(_ context.Context, peer plan.PeerID, _ string, request any) ([]byte, error) {
	b, err := json.Marshal(request)
	if err != nil {
		a.Fatal(err)
	}
	answer, there := a.answers[peer]
	if !there {
		return nil, errors.New("nobody is there")
	}
	return answer(b)
}

func (a at) Serve(_ string, answer func(context.Context, plan.PeerID, []byte) ([]byte, error)) {
	a.answers[a.self] = func(request []byte) ([]byte, error) { return answer(context.Background(), "", request) }
}

// planOf returns a plan of one stage on each of the peers, for a model of four layers.
func planOf(g plan.Generation, start plan.Step, peers ...plan.PeerID) plan.Plan {
	p := plan.Plan{Run: "run", Generation: g, Start: start, Schedule: "1f1b", Replicas: []plan.Pipeline{{Micros: 4}}}
	for i, peer := range peers {
		l := plan.LayerRange{First: 4 * i / len(peers), End: 4 * (i + 1) / len(peers)}
		p.Replicas[0].Stages = append(p.Replicas[0].Stages, plan.Placement{Peer: peer, Device: "cpu", Layers: l})
		p.Replicas[0].Warmups = append(p.Replicas[0].Warmups, len(peers)-i)
	}
	return p
}

func newTown(t *testing.T) *town {
	run := &plan.RunSpec{Model: model.Config{Blocks: 2}, Train: plan.TrainSpec{Micros: 4, Steps: 10_000}}
	return &town{T: t, answers: map[plan.PeerID]func([]byte) ([]byte, error){}, ledgers: map[plan.PeerID]*ledger.Recorder{}, state: consensus.State{Run: run}}
}

// begin has the log say a plan to the nodes that are there, from the newest checkpoint on.
func (x *town) begin(p plan.Plan) {
	x.state.Plan, x.state.Checkpoint.Step, x.newest = p, p.Start, p.Start
	for _, l := range x.ledgers {
		l.Plan(p, nil)
	}
}

// train has the workers of the plan commit steps up to one.
func (x *town) train(last plan.Step) {
	for ; x.newest < last; x.newest++ {
		p := x.state.Plan
		for _, id := range p.Workers() {
			work := ledger.Work{Generation: p.Generation, Worker: id, By: id.Peer}
			for _, s := range p.StagesOf(id) {
				work.Stages = append(work.Stages, ledger.StageWork{StageID: s, Layers: p.At(s).Layers, Micros: []plan.Micro{0, 1, 2, 3}})
			}
			if l := x.ledgers[id.Peer]; l != nil {
				l.Step(work, commitOf(x.newest+1))
			}
		}
	}
}

func commitOf(s plan.Step) ledger.Commit { return ledger.CommitOf(s, 3+1/float64(s), 1) }

// enter starts a node with a ledger in a folder.
func (x *town) enter(self plan.PeerID, dir string) *Hearsay {
	l := ledger.New(dir, ledger.Head{Run: "run", Peer: self, Name: string(self)}, slog.New(slog.DiscardHandler))
	x.Cleanup(func() { _ = l.Close() })
	x.ledgers[self] = l
	x.state.Members = append(slices.DeleteFunc(x.state.Members, func(m consensus.Member) bool { return m.Peer == self }), consensus.Member{Peer: self, ProcessEpoch: 1, State: consensus.Active})
	slices.SortFunc(x.state.Members, func(a, b consensus.Member) int { return cmpPeers(a.Peer, b.Peer) })
	return New(Config{
		Self: self, Epoch: 1, Peers: at{x, self}, Ledger: l, Log: slog.New(slog.DiscardHandler),
		State: func() consensus.State { return x.state }, Newest: func(plan.Plan) plan.Step { return x.newest },
		Living: func() (all []plan.PeerID) {
			for _, m := range x.state.Members {
				all = append(all, m.Peer)
			}
			return all
		},
	})
}

func cmpPeers(a, b plan.PeerID) int {
	if a < b {
		return -1
	}
	return 1
}

// wipe ends a node and deletes its folder.
func (x *town) wipe(p plan.PeerID) { delete(x.answers, p); delete(x.ledgers, p) }

// audit returns what one node's ledger alone proves.
func (x *town) audit(dir string) ledger.Report {
	c, err := ledger.Read(dir)
	if err != nil {
		x.Fatal(err)
	}
	return ledger.Audit(ledger.Size{Layers: 4, Micros: 4, MicroBatch: 1}, []ledger.Node{{Dir: dir, Contents: c}})
}

// TestOneLedgerProvesAll: a node that is away, has no part in plans, and has one again, proves every step by its own ledger
// alone, whoever computed it.
func TestOneLedgerProvesAll(t *testing.T) {
	x, dir := newTown(t), t.TempDir()
	for _, p := range []plan.PeerID{"a", "b", "c"} {
		x.enter(p, t.TempDir())
	}
	w := x.enter("w", dir)
	look := func() {
		t.Helper()
		if w.look(t.Context(), true); w.look(t.Context(), true) {
			t.Errorf("step %d of generation %d: the ledger lacks steps", x.newest, x.state.Plan.Generation)
		}
	}
	x.begin(planOf(1, 0, "a", "b")) // it watches
	x.train(5)
	look()
	x.train(7)
	look()
	x.begin(planOf(2, 7, "a", "w")) // it takes part
	x.train(9)
	look()
	x.wipe("w") // it is away, and the others lose steps on the way
	x.begin(planOf(3, 9, "a", "b"))
	x.train(14)
	x.begin(planOf(4, 12, "b", "c"))
	x.train(20)
	w = x.enter("w", dir)
	x.begin(planOf(5, 20, "b", "w")) // it comes back to a plan of its own
	x.train(22)
	look()
	x.begin(planOf(6, 22, "w", "c"))
	x.train(30)
	look()
	r := x.audit(dir)
	if err := r.Err(); err != nil || r.Steps != 30 || r.Samples != 120 || r.Lost != 0 || r.Told != 18 {
		t.Errorf("%v: %+v", err, r)
	}
	late := t.TempDir() // and so does one that joins at the end
	w = x.enter("z", late)
	x.ledgers["z"].Plan(x.state.Plan, nil)
	look()
	if r := x.audit(late); r.Err() != nil || r.Steps != 30 || r.Told != 30 || r.Lost != 0 {
		t.Errorf("who came late: %v: %+v", r.Err(), r)
	}
}

// TestWhoIsBelieved has "a" tell something else than "b", its fellow in the plan, whose two steps nobody has saved yet.
func TestWhoIsBelieved(t *testing.T) {
	lie := func(commits ...ledger.Committed) func([]byte) ([]byte, error) {
		return func([]byte) ([]byte, error) {
			return json.Marshal(ledger.Word{Commits: commits, Plans: []plan.Plan{planOf(1, 0, "a", "b")}})
		}
	}
	at := func(s plan.Step, more float64) ledger.Committed {
		return ledger.Committed{Generation: 1, Commit: ledger.CommitOf(s, 3+1/float64(s)+more, 1)}
	}
	refused := func([]byte) ([]byte, error) { return nil, errors.New("no") }
	other := planOf(1, 0, "a", "b")
	other.Replicas[0].Stages[0].Device = "gpu"
	for name, c := range map[string]struct {
		a, b  func([]byte) ([]byte, error) // nil: the truth
		saved plan.Step
		steps plan.Step // that the ledger proves
		wrong bool      // the audit says so
	}{
		"both tell the truth":               {steps: 2},
		"another loss":                      {a: lie(at(1, 0), at(2, 0.5)), steps: 2, wrong: true},
		"steps that never were":             {a: lie(at(1, 0), at(2, 0), at(3, 0), at(4, 0)), steps: 2},
		"one alone tells, nothing is saved": {b: refused, steps: 0},
		"one alone tells, one is saved":     {b: refused, saved: 1, steps: 1},
		"one alone tells, all is saved":     {b: refused, saved: 2, steps: 2},
		"out of order":                      {a: lie(at(2, 0), at(1, 0)), steps: 0},
		"of a generation to come":           {a: lie(ledger.Committed{Generation: 2, Commit: commitOf(1)}), steps: 0},
		"a step after the last":             {a: lie(at(1, 0), at(20_000, 0)), steps: 0},
		"another plan": {a: func([]byte) ([]byte, error) {
			return json.Marshal(ledger.Word{Commits: []ledger.Committed{at(1, 0)}, Plans: []plan.Plan{other}})
		}, steps: 0},
	} {
		t.Run(name, func(t *testing.T) {
			x, dir := newTown(t), t.TempDir()
			x.enter("a", t.TempDir())
			x.enter("b", t.TempDir())
			w := x.enter("w", dir)
			x.begin(planOf(1, 0, "a", "b"))
			x.train(2)
			x.state.Checkpoint.Step = c.saved
			if c.a != nil {
				x.answers["a"] = c.a
			}
			if c.b != nil {
				x.answers["b"] = c.b
			}
			w.look(t.Context(), true)
			r := x.audit(dir)
			if r.Steps != c.steps || c.steps > 0 && (r.Err() != nil) != c.wrong {
				t.Errorf("%d steps, %v", r.Steps, r.Err())
			}
		})
	}
}

// TestStepsThatNobodyHas: after a while the ledger goes on with what can be had.
func TestStepsThatNobodyHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, dir := newTown(t), t.TempDir()
		x.enter("a", t.TempDir())
		x.begin(planOf(1, 0, "a"))
		x.train(10)
		x.wipe("a")
		x.enter("b", t.TempDir())
		x.begin(planOf(2, 10, "b"))
		w := x.enter("w", dir)
		x.ledgers["w"].Plan(x.state.Plan, nil)
		x.train(14)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); w.Run(ctx) }()
		time.Sleep(2 * time.Minute)
		cancel()
		<-done
		if r := x.audit(dir); r.Steps != 14 || r.Told != 4 || r.Lost != 4*10 {
			t.Errorf("%+v", r)
		}
	})
}

// TestOuterStepsAreInTheLog: a node asks nobody for what plans with local steps have done, and goes on with those after them.
func TestOuterStepsAreInTheLog(t *testing.T) {
	x := newTown(t)
	x.enter("a", t.TempDir())
	w := x.enter("w", t.TempDir())
	local := func(g plan.Generation, start plan.Step) plan.Plan {
		p := planOf(g, start, "a")
		p.Local = &plan.Local{}
		return p
	}
	for _, c := range []struct {
		plan  plan.Plan
		last  plan.Step // that workers commit
		lacks bool
	}{
		{plan: planOf(1, 0, "a"), last: 4, lacks: true},
		{plan: local(2, 4)},
		{plan: local(3, 12)},
		{plan: local(4, 20)},
		{plan: planOf(5, 24, "a"), last: 30, lacks: true},
	} {
		x.begin(c.plan)
		x.train(c.last)
		if lacks := w.lacks(x.state); lacks != c.lacks {
			t.Errorf("generation %d: lacks steps after %+v: %t", c.plan.Generation, w.at, lacks)
		}
		if w.look(t.Context(), true) {
			t.Errorf("generation %d: steps lack that others tell of, after %+v", c.plan.Generation, w.at)
		}
	}
}

// TestAFloodIsBounded: a member that tells the same steps of one generation after the other fills no disk.
func TestAFloodIsBounded(t *testing.T) {
	x, dir := newTown(t), t.TempDir()
	x.enter("a", t.TempDir())
	w := x.enter("w", dir)
	x.begin(planOf(1000, 9000, "a", "b"))
	x.answers["a"] = func(request []byte) ([]byte, error) {
		q, err := decodeQuestion(request)
		if err != nil {
			return nil, err
		}
		after := q.After
		g := max(after.Generation, 1)
		if after.Step >= ledger.MaxWord {
			g, after.Step = g+1, 0
		}
		said := ledger.Word{Plans: []plan.Plan{planOf(g, 0, "a")}}
		for s := after.Step + 1; s <= ledger.MaxWord; s++ {
			said.Commits = append(said.Commits, ledger.Committed{Generation: g, Commit: commitOf(s)})
		}
		return json.Marshal(said)
	}
	for range 4 {
		w.look(t.Context(), true)
	}
	c, err := ledger.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(c.Told); n < mostAgain/2 || n > mostAgain+2*ledger.MaxWord {
		t.Errorf("%d commits were written down, at most %d of steps again may be", n, mostAgain)
	}
}

// FuzzDecode: what is taken was possible.
func FuzzDecode(f *testing.F) {
	run := plan.RunSpec{Model: model.Config{Blocks: 2}, Train: plan.TrainSpec{Micros: 4, Steps: 100}}
	v := view{run: run, id: "run", plan: planOf(3, 6, "a"), planOf: func(plan.Generation) (plan.Plan, bool) { return plan.Plan{}, false }}
	good, err := json.Marshal(ledger.Word{Plans: []plan.Plan{planOf(2, 0, "a", "b")}, Commits: []ledger.Committed{{Generation: 2, Commit: commitOf(1)}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"commits":[{"generation":2,"step":1}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		after := ledger.Position{}
		s, err := v.decode("a", after, data)
		if err != nil {
			if !errors.Is(err, errBadWord) {
				t.Fatal(err)
			}
			return
		}
		for _, c := range s.word.Commits {
			if c.Position().Compare(after) <= 0 || c.Generation > 3 || c.Step > 100 {
				t.Fatal(fmt.Sprint(s))
			}
			after = c.Position()
		}
		_ = v.accept(ledger.Position{}, []statement{s, s})
	})
}

// TestTheStepsOfTheLineageThatCounts: a made a generation of its own, which was given up, and has a part in the next one at once. It asks for
// what the others did meanwhile, so that its ledger alone proves every step.
func TestTheStepsOfTheLineageThatCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, dir := newTown(t), t.TempDir()
		a := x.enter("a", dir)
		x.enter("b", t.TempDir())
		x.begin(planOf(1, 0, "a", "b"))
		x.train(6)
		founder, other := x.ledgers["a"], x.ledgers["b"]
		delete(x.ledgers, "b")
		x.begin(planOf(2, 4, "a"))
		x.train(10)
		a.look(t.Context(), true)

		x.ledgers = map[plan.PeerID]*ledger.Recorder{"b": other}
		x.state.Partings = plan.Partings{{Recovery: "r", Generation: 1}}
		other.Follow(x.state.Partings)
		x.begin(planOf(2, 4, "b"))
		x.train(8)
		x.ledgers["a"] = founder
		founder.Follow(x.state.Partings)
		x.begin(planOf(3, 8, "a", "b"))
		x.train(12)
		for a.look(t.Context(), true) {
		}
		r := x.audit(dir)
		if r.Err() != nil || r.Steps != 12 || r.Lost != 0 || len(r.Discarded) != 1 {
			t.Errorf("%v, %d steps, discarded %v", r.Err(), r.Steps, r.Discarded)
		}
	})
}

// TestALateComerInANewLineage: the founder, which has not heard of a recovery yet, made a generation of a number that the run made again
// without it. One that joins the recovered run is told nothing of that, whoever else has it too.
func TestALateComerInANewLineage(t *testing.T) {
	x, dir := newTown(t), t.TempDir()
	for _, p := range []plan.PeerID{"a", "b", "c", "e"} {
		x.enter(p, t.TempDir())
	}
	old := map[plan.PeerID]*ledger.Recorder{"a": x.ledgers["a"], "e": x.ledgers["e"]}
	all := x.ledgers
	x.begin(planOf(1, 0, "a", "b"))
	x.train(4)
	x.ledgers = old
	x.begin(planOf(2, 4, "a", "e")) // by the log of before
	x.train(9)
	x.ledgers = map[plan.PeerID]*ledger.Recorder{"b": all["b"], "c": all["c"]}
	x.state.Partings = plan.Partings{{Recovery: "r", Generation: 1}}
	for _, l := range x.ledgers {
		l.Follow(x.state.Partings)
	}
	x.begin(planOf(2, 4, "b", "c"))
	x.train(8)
	d := x.enter("d", dir)
	x.ledgers["d"].Follow(x.state.Partings)
	x.begin(planOf(3, 8, "a", "e")) // which are in the roster again, and have not followed yet: they are asked first
	for d.look(t.Context(), true) {
	}
	if r := x.audit(dir); r.Err() != nil || r.Steps != 8 || r.Lost != 0 {
		t.Errorf("%v: %+v", r.Err(), r)
	}
}
