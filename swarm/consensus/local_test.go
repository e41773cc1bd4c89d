package consensus

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pnode/pipeline/model"
	"pnode/planner/plan"
	"pnode/swarm/consensus/rounds"
)

// TestRunsWithLocalSteps have rules in bounds, and few enough micro-batches to number.
func TestRunsWithLocalSteps(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*plan.TrainSpec)
		ok     bool
	}{
		"usual":                   {func(*plan.TrainSpec) {}, true},
		"with settings":           {func(s *plan.TrainSpec) { s.Sync = plan.SyncRule{Local: true, Every: 50, Codec: "int8"} }, true},
		"of another codec":        {func(s *plan.TrainSpec) { s.Sync.Codec = "f8" }, false},
		"settings of none":        {func(s *plan.TrainSpec) { s.Sync = plan.SyncRule{Every: 50} }, false},
		"too many micro-batches":  {func(s *plan.TrainSpec) { s.Micros = maxLocalMicros + 1 }, false},
		"too many steps":          {func(s *plan.TrainSpec) { s.Steps = maxSteps + 1 }, false},
		"many of others' batches": {func(s *plan.TrainSpec) { s.Micros, s.Sync = maxLocalMicros+1, plan.SyncRule{} }, true},
	} {
		run := testRun()
		run.Spec.Train.Sync.Local = true
		c.change(&run.Spec.Train)
		if _, err := Apply(State{}, run); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNoLocalStepsInARunThatHasNone: no plan gets them, nor what they leave.
func TestNoLocalStepsInARunThatHasNone(t *testing.T) {
	s := planned(t)
	for what, change := range map[string]func(p *plan.Plan){
		"a replica's state": func(p *plan.Plan) { p.Replicas[0].Own = &plan.Own{} },
		"a stream":          func(p *plan.Plan) { p.Stream.Fresh = 7 },
	} {
		next := s.Plan
		next.Generation, next.Replicas = 2, []plan.Pipeline{s.Plan.Replicas[0]}
		change(&next)
		if _, err := Apply(s, SetPlan{Epoch: s.Epoch, Term: 1, Plan: next}); !errors.Is(err, ErrRejected) || !strings.Contains(err.Error(), "local steps") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// withLocalSteps is a state with a run that has local steps by the rule of a scenario's line.
func withLocalSteps(t testing.TB, spec plan.RunSpec, line string) State {
	_, p := fields(line)
	rule, err := plan.ParseSync(strings.ReplaceAll(p["sync"], "/", "="))
	if err != nil {
		t.Fatal(err)
	}
	spec.Train.Sync = rule
	spec.Model = model.Config{Vocab: 256, Context: 8, Blocks: spec.Model.Blocks, Heads: 1, Channels: 8}
	return State{Run: &spec, Incarnation: 1, Owners: []plan.PeerID{"a"}}
}

// parseParts reads what came of each replica: a9,b10,- are 9 steps of messages a, 10 of messages b, and nothing.
func parseParts(t testing.TB, text string) (all []plan.Part) {
	for _, word := range list(text) {
		part := plan.Part{}
		if word != "-" {
			part.Sum[0] = word[0]
			if _, err := fmt.Sscan(word[1:], &part.Steps); err != nil {
				t.Fatal(err)
			}
		}
		all = append(all, part)
	}
	return all
}

// parseOwn reads own=1: what replica 1 has for itself.
func parseOwn(t *testing.T, p map[string]string) *plan.Replica {
	if p["own"] == "" {
		return nil
	}
	r := plan.Replica(number(t, p["own"]))
	return &r
}

// parseBegin reads 1@20, the state that replica 1 had at step 20, and 1@20! as a copy of it; - is none.
func parseBegin(t *testing.T, text string) *plan.Own {
	if text == "-" {
		return nil
	}
	of, copied := strings.CutSuffix(text, "!")
	r, step, _ := strings.Cut(of, "@")
	return &plan.Own{Replica: plan.Replica(number(t, r)), Step: plan.Step(number(t, step)), Copied: copied}
}

// describeRounds prints what replicas with local steps have come to.
func describeRounds(s State) string {
	var b strings.Builder
	if m := s.Merged; m != nil {
		fmt.Fprintf(&b, "; steps %d to %d of %v", m.From, m.To, m.Counted())
		for _, word := range []struct {
			is   bool
			word string
		}{{len(m.Disputed) > 0, fmt.Sprint(" against ", m.Disputed)}, {m.Save, " saved"}, {m.Last, " at last"}} {
			if word.is {
				b.WriteString(word.word)
			}
		}
	}
	if r := s.Round; r != nil {
		fmt.Fprintf(&b, "; round %d to %d waits for %v", r.From, r.End, r.Missing())
		if r.Closed {
			b.WriteString(" closed")
		}
		for _, out := range r.LeftOut {
			fmt.Fprintf(&b, " without %d (%s)", out.Replica, out.Reason)
		}
	}
	if given := s.Checkpoint.Stream; given.Fresh > 0 {
		fmt.Fprintf(&b, "; left are %v and from %d on", given.Given, given.Fresh)
	}
	return b.String()
}

// inRounds is a state with a plan of two replicas, one of which has said what it has.
func inRounds(t testing.TB) State {
	spec := testRun().Spec
	s := withLocalSteps(t, spec, "sync=local:h/10,codec/int8")
	var err error
	replica := func(on plan.PeerID, micro plan.Micro) plan.Pipeline {
		return plan.Pipeline{FirstMicro: micro, Micros: 1, Warmups: []int{0}, Stages: []plan.Placement{{Peer: on, Device: "cpu", Layers: plan.LayerRange{End: 3}}}}
	}
	for _, e := range []Entry{
		Join{Peer: "a", ProcessEpoch: 1},
		SetMemberState{Peer: "a", ProcessEpoch: 1, State: Active},
		Join{Peer: "b", ProcessEpoch: 1},
		SetMemberState{Peer: "b", ProcessEpoch: 1, State: Active},
		SetPlan{Epoch: 4, Term: 1, Plan: plan.Plan{
			Run: "run", Generation: 1, Schedule: "1f1b", Replicas: []plan.Pipeline{replica("a", 0), replica("b", 1)},
			Local: &plan.Local{Rounds: plan.Rounds{Every: 10, Fragments: 1}, Codec: "int8"},
		}},
		CloseRound{Generation: 1},
		Gathered{Generation: 1, Replica: 0, Parts: parseParts(t, "a9,b10"), Due: true},
		Gathered{Generation: 1, Replica: 1, Parts: parseParts(t, "a9,b10")},
		Gathered{Generation: 1, From: 10, Replica: 1, Parts: parseParts(t, "a10,b10")},
	} {
		if s, err = Apply(s, e); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// TestARoundStaysClosed that a pause or a stop has closed: replicas end it from then on, also where the run goes on before all have heard of that.
func TestARoundStaysClosed(t *testing.T) {
	short := Gathered{Generation: 1, From: 10, Replica: 0, Parts: parseParts(t, "a3,b10")}
	if _, err := Apply(inRounds(t), short); !errors.Is(err, ErrRejected) || errors.Is(err, ErrStale) {
		t.Errorf("an open round is ended early: %v", err)
	}
	for name, entries := range map[string][]Entry{
		"a pause":                  {WantPause{Count: 1}},
		"a stop":                   {WantStop{}},
		"a stop, and it goes on":   {WantStop{}, Resume{Incarnation: 2}},
		"the run has diverged":     {Blame{Peer: "a", Accuser: "a", Kind: plan.BadReport, Generation: 1, Step: 12}, Blame{Peer: "b", Accuser: "b", Kind: plan.BadReport, Generation: 1, Step: 12, Diverged: true}},
		"it is closed by a leader": {CloseRound{Generation: 1, From: 10}},
	} {
		s := inRounds(t)
		var err error
		for _, e := range append(entries, short) {
			if s, err = Apply(s, e); err != nil {
				t.Fatalf("%s: %T: %v", name, e, err)
			}
		}
		if m := s.Merged; m == nil || m.From != 10 || m.Parts[0].Steps != 3 {
			t.Errorf("%s: %s", name, describe(s))
		}
	}
}

// TestRoundsOfASnapshotAreChecked: a snapshot has no round that entries could not have led to.
func TestRoundsOfASnapshotAreChecked(t *testing.T) {
	for what, change := range map[string]func(s *State){
		"":                func(*State) {},
		"no plan":         func(s *State) { s.Plan = plan.Plan{} },
		"every-step":      func(s *State) { s.Plan.Local = nil },
		"words of three":  func(s *State) { s.Round.Gathered = append(s.Round.Gathered, nil) },
		"parts of one":    func(s *State) { s.Round.Gathered[1] = s.Round.Gathered[1][:1] },
		"too many steps":  func(s *State) { s.Round.Gathered[1][0].Steps = 11 },
		"too long":        func(s *State) { s.Round.End = 21 },
		"over":            func(s *State) { s.Round.End = s.Round.From },
		"ended early":     func(s *State) { s.Round.Gathered[1][1].Steps = 9 },
		"hasty, and open": func(s *State) { s.Round.Hasty = []plan.Contradiction{{Of: 1}} },
		"hasty of none":   func(s *State) { *s.Round = s.Round.Close(); s.Round.Hasty = []plan.Contradiction{{Of: 2}} },
		"hasty of all steps": func(s *State) {
			*s.Round = s.Round.Close()
			s.Round.Hasty = []plan.Contradiction{{Of: 1, Has: plan.Part{Steps: 10}}}
		},
		"of later":               func(s *State) { s.Round.From, s.Round.End = 20, 30 },
		"of later, first":        func(s *State) { s.Merged = nil },
		"nobody":                 func(s *State) { s.Round.LeftOut = []rounds.LeftOut{{Replica: 0}, {Replica: 1}} },
		"an unknown one":         func(s *State) { s.Round.LeftOut = []rounds.LeftOut{{Replica: 2}} },
		"a bad stream":           func(s *State) { s.Round.Stream.Fresh = -1 },
		"a merged bad stream":    func(s *State) { s.Merged.Stream.Fresh = -1 },
		"a saved bad stream":     func(s *State) { s.Checkpoint.Stream.Fresh = -1 },
		"merged by nobody":       func(s *State) { s.Merged.Parts = make([]plan.Part, 2) },
		"merged by three":        func(s *State) { s.Merged.Parts = make([]plan.Part, 3) },
		"merged by another plan": func(s *State) { s.Merged.Generation = 2 },
		"a dispute of others":    func(s *State) { s.Merged.Disputed = []plan.Replica{2} },
		"after the last":         func(s *State) { s.Merged.Last = true },
		"own states twice":       func(s *State) { s.Pending[0].Own[1].Replica = 0 },
		"an own state of none":   func(s *State) { s.Pending[0].Own[1].Replica = plan.MaxLocalReplicas },
		"an own layer of nobody": func(s *State) { s.Pending[0].Own[1].Layers = []LayerRef{{}} },
	} {
		s := inRounds(t)
		change(&s)
		b, err := EncodeState(s)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := DecodeState(bytes.NewReader(b)); (what == "") != (err == nil) || err != nil && !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: %v", what, err)
		}
	}
}

// TestTheLargestGatheredFits: as many replicas as a plan may have can say what they have.
func TestTheLargestGatheredFits(t *testing.T) {
	e := Gathered{Generation: math.MaxUint32, From: maxSteps, Replica: plan.MaxLocalReplicas - 1, Due: true}
	for range plan.MaxLocalReplicas {
		e.Parts = append(e.Parts, plan.Part{Steps: plan.MaxEvery, Sum: plan.Hash{0: 255, 31: 255}})
		e.Seals = append(e.Seals, plan.Hash{0: 255, 31: 255})
	}
	encoded(t, e)
	e.Parts = slices.Repeat(e.Parts, 2)
	if _, err := EncodeEntry(e); !errors.Is(err, ErrMalformed) {
		t.Errorf("twice as many parts: %v", err)
	}
}

// TestAnExtendedRunHasWarmedUp where it had before, though a share of its steps is later now.
func TestAnExtendedRunHasWarmedUp(t *testing.T) {
	spec := testRun().Spec
	s := withLocalSteps(t, spec, "sync=local:warmup/10%")
	s.StopWanted = true
	s, err := Apply(s, Extend{Steps: 900})
	if err != nil || s.Run.Train.Sync.WarmupEnd(900) != 10 {
		t.Errorf("up to step %d: %v", s.Run.Train.Sync.WarmupEnd(900), err)
	}
}

// TestWhatReplicasCanBeginWith: own states that members hold, of the checkpoint or copied from older ones. Without any, the checkpoint is of no use.
func TestWhatReplicasCanBeginWith(t *testing.T) {
	s := inRounds(t)
	s.Run.Model.LoRA = model.LoRA{Rank: 1, Alpha: 1, Targets: "c_fc"} // the ends of the model are frozen
	zero, one := plan.Replica(0), plan.Replica(1)
	save := func(step plan.Step, own *plan.Replica, by plan.PeerID, layers ...int) {
		t.Helper()
		e := StageSaved{Step: step, Generation: 1, Own: own}
		for _, l := range layers {
			e.Layers = append(e.Layers, LayerRef{Layer: l, SizeBytes: 1, Chunks: []plan.Hash{{byte(l)}}, Holders: []plan.PeerID{by}})
		}
		var err error
		if s, err = Apply(s, e); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Apply(s, StageSaved{Step: 10, Generation: 1, Own: &one, Layers: []LayerRef{{SizeBytes: 1, Chunks: []plan.Hash{{}}, Holders: []plan.PeerID{"b"}}}}); err == nil || !strings.Contains(err.Error(), "nothing of it is trained") {
		t.Errorf("an own state of a frozen layer: %v", err)
	}
	save(10, nil, "a", 0, 1, 2)
	save(10, &zero, "a", 1)
	save(10, &one, "b", 1)
	for replica := range plan.Replica(2) {
		var err error
		if s, err = Apply(s, Gathered{Generation: 1, From: 10, Replica: replica, Parts: parseParts(t, "a10,b10"), Due: true}); err != nil {
			t.Fatal(err)
		}
	}
	save(20, nil, "a", 0, 1, 2)
	save(20, &one, "b", 1)
	hold := func(want string, newest plan.Step, gone ...plan.PeerID) {
		t.Helper()
		now := s
		now.Members = slices.Clone(s.Members)
		for i := range now.Members {
			if slices.Contains(gone, now.Members[i].Peer) {
				now.Members[i].State = Gone
			}
		}
		if got := fmt.Sprint(OwnStates(now, now.Checkpoint)); got != want {
			t.Errorf("without %v: %s, want %s", gone, got, want)
		}
		if c, _ := NewestWhole(now); c.Step != newest {
			t.Errorf("without %v the newest checkpoint is of step %d, want %d", gone, c.Step, newest)
		}
		if r := Restore(now); len(r.By) > 0 {
			t.Errorf("without %v layers %v of local steps are to be computed again", gone, r.Layers)
		}
	}
	hold("[{1 20 false} {0 10 true} {1 10 true}]", 20)
	hold("[{0 10 true}]", 20, "b")
	hold("[{1 20 false} {1 10 true}]", 0, "a")
	hold("[]", 0, "a", "b")
	s.Older = nil
	hold("[]", 0, "b")
}
