package consensus

import (
	"errors"
	"slices"
	"testing"

	"pnode/pipeline/model"
	"pnode/planner/plan"
)

// checkpointOf returns a checkpoint of layers from 0 on, by who holds each.
func checkpointOf(step plan.Step, g plan.Generation, holders ...[]plan.PeerID) Checkpoint {
	c := Checkpoint{Step: step, Generation: g}
	for l, peers := range holders {
		c.Layers = append(c.Layers, LayerRef{Layer: l, SizeBytes: 1, Chunks: []plan.Hash{{byte(step), byte(l)}}, Holders: peers})
	}
	return c
}

// by returns peers of one letter each.
func by(letters string) (peers []plan.PeerID) {
	for _, l := range letters {
		peers = append(peers, plan.PeerID(l))
	}
	return peers
}

// restorable returns the state of four members in generation 3, which began with step 20. They have no copies of the newest checkpoints.
func restorable() State {
	s := State{
		Run:        &plan.RunSpec{Model: model.Config{Blocks: 1}, Train: plan.TrainSpec{Steps: 100}},
		Checkpoint: checkpointOf(20, 2, by("ad"), by("b"), by("c")),
		Older: []Checkpoint{
			checkpointOf(16, 2, by("a"), by("b"), by("c")), checkpointOf(12, 1, by("ba"), by("ca"), by("bc")),
			checkpointOf(8, 1, by("ab"), by("ba"), by("cd")), checkpointOf(4, 1, by("ab"), by("ba"), by("cd")),
		},
		Plan: plan.Plan{Generation: 3, Start: 20, Replicas: []plan.Pipeline{{Stages: []plan.Placement{
			{Peer: "a", Holder: "b", Layers: plan.LayerRange{End: 1}}, {Peer: "d", Holder: "a", Layers: plan.LayerRange{First: 1, End: 3}},
		}}}},
	}
	for _, p := range by("abcd") {
		s.Members = append(s.Members, Member{Peer: p, State: Active})
	}
	return s
}

// without returns the state in which some members are gone.
func (s State) without(peers ...plan.PeerID) State {
	for _, p := range peers {
		m, _ := s.Member(p)
		m.State = Gone
		s = s.withMember(m)
	}
	return s
}

// TestTheRecoveryLineEndsWithACheckpointThatIsHeldTwice: however many are not, and as deaths and copies change it.
func TestTheRecoveryLineEndsWithACheckpointThatIsHeldTwice(t *testing.T) {
	want := func(what string, s State, steps ...plan.Step) {
		t.Helper()
		var got []plan.Step
		for _, c := range RecoveryLine(s) {
			got = append(got, c.Step)
		}
		if !slices.Equal(got, steps) {
			t.Errorf("%s: %v, want %v", what, got, steps)
		}
	}
	s := restorable()
	want("two have no copies", s, 20, 16, 12)
	want("a copy is lost", s.without("b"), 20, 16, 12, 8, 4)
	copied := s
	copied.Checkpoint = checkpointOf(20, 2, by("ad"), by("ba"), by("cb"))
	want("the newest is copied", copied, 20)
	m, _ := copied.Member("d")
	m.State = Draining
	want("who has a copy of the newest leaves", copied.withMember(m), 20, 16, 12)
	m, _ = copied.Member("b")
	m.State = Draining
	want("who has copies of all leaves", copied.withMember(m), 20, 16, 12, 8, 4)
	want("before the first", State{}, 0)
	alone := s.without("b", "c", "d")
	alone.Plan.Replicas = []plan.Pipeline{{Stages: []plan.Placement{{Peer: "a", Layers: plan.LayerRange{End: 3}}}}}
	alone.Checkpoint = checkpointOf(20, 2, by("a"), by("a"), by("a"))
	want("nobody else could hold it", alone, 20)
}

// TestWhoRestoresALayerFollowsFromTheLog: nobody while somebody holds it. Then those that made the checkpoint come first, and of these who
// has most of it in the newest checkpoint that has all of what is lost. Where their plan began without that, the checkpoint that it began
// with is restored first. Nobody else may say that it has a layer again.
func TestWhoRestoresALayerFollowsFromTheLog(t *testing.T) {
	want := func(name string, s State, of, from plan.Step, peers string, lost ...int) {
		t.Helper()
		r := Restore(s)
		if r.Of.Step != of || r.From.Step != from || !slices.Equal(r.By, by(peers)) || !slices.Equal(r.Layers, lost) {
			t.Errorf("%s: %v restore %v of step %d from step %d, want %q %v, %d and %d", name, r.By, r.Layers, r.Of.Step, r.From.Step, peers, lost, of, from)
		}
	}
	s := restorable()
	want("all live", s, 0, 0, "")
	one := s.without("c")
	want("one is lost", one, 20, 12, "bad", 2)
	reborn := one
	m, _ := one.Member("b")
	m.Since = 1
	want("b was started again after the plan", reborn.withMember(m), 20, 12, "ad", 2)
	want("a second one", s.without("b", "c"), 12, 8, "da", 2)
	held := s.without("b", "c")
	held.Older = slices.Clone(held.Older)
	held.Older[1] = checkpointOf(12, 1, by("ba"), by("ca"), by("bcd"))
	want("and that is restored", held, 20, 12, "ad", 1, 2)
	want("nobody holds any of it", s.without("c", "d"), 20, 12, "ba", 2)
	more := s
	more.Members = append(slices.Clone(s.Members), Member{Peer: "e", State: Active})
	more.Checkpoint = checkpointOf(20, 2, by("ea"), by("a"), by("d"))
	more.Older = []Checkpoint{checkpointOf(16, 2, by("e"), by("a"), by("db")), checkpointOf(12, 2, by("ea"), by("ab"), by("db"))}
	want("another who is gone made a layer that is held", more.without("d", "e"), 20, 12, "abc", 2)
	moved := more
	moved.Checkpoint = checkpointOf(20, 2, by("b"), by("a"), by("d"))
	moved.Older = []Checkpoint{checkpointOf(16, 1, by("e"), by("a"), by("db")), more.Older[1]}
	want("who makes it now has loaded it", moved.without("d", "e"), 20, 16, "bac", 2)
	moved.Checkpoint = more.Checkpoint
	want("the plan began without what another one made", moved.without("d", "e"), 16, 12, "abc", 0)
	none := one
	none.Older = s.Older[:1]
	want("all that is kept lacks it", none, 0, 0, "")
	over := one
	over.Finished = true
	want("the run is finished", over, 0, 0, "")

	two := s.without("b", "c")
	again := StageSaved{Step: 12, Generation: 1, Layers: []LayerRef{two.Older[1].Layers[2]}}
	again.Layers[0].Holders = by("d")
	if err := Authorize(two, Author{Peer: "d"}, again); err != nil {
		t.Error(err)
	}
	if err := Authorize(two, Author{Peer: "a"}, again); err == nil {
		t.Error("one may say that another one has the layer")
	}
	if _, err := again.apply(one); !errors.Is(err, ErrStale) {
		t.Errorf("a layer that is not lost may be restored: %v", err)
	}
	restored, err := again.apply(two)
	if err != nil {
		t.Fatal(err)
	}
	want("the first is restored", restored, 20, 12, "ad", 1, 2)
	if !slices.Equal(two.Older[1].Layers[2].Holders, by("bc")) {
		t.Error("the state before has changed")
	}
	again.Layers[0].Chunks = []plan.Hash{{9}}
	if _, err := again.apply(two); err == nil || errors.Is(err, ErrStale) {
		t.Errorf("other contents are taken: %v", err)
	}
}

// TestWhatARestorationGoesByStays: the newest checkpoint that is held twice and those that plans since then began with, before others, and
// no more than are asked for where these are not more.
func TestWhatARestorationGoesByStays(t *testing.T) {
	older := []Checkpoint{{Step: 30, Generation: 4}, {Step: 28, Generation: 4}, {Step: 26, Generation: 3}, {Step: 24, Generation: 3}, {Step: 22, Generation: 3}, {Step: 20, Generation: 2}}
	for _, c := range []struct {
		keep, line int
		want       []plan.Step
		once       bool // the last is held once
	}{
		{1, 0, []plan.Step{30}, false}, // JumpReach steps old
		{3, 0, []plan.Step{30, 28}, false},
		{3, 1, []plan.Step{30, 28}, false},
		{1, 2, []plan.Step{28}, false},
		{3, 2, []plan.Step{30, 28}, false},
		{1, 5, []plan.Step{26, 22}, false}, // 26 is what generation 4 began with
		{3, 5, []plan.Step{30, 26, 22}, false},
		{1, 6, []plan.Step{26, 20}, false},
		{1, 5, []plan.Step{30, 26, 22}, true},
		{4, 5, []plan.Step{30, 28, 26, 22}, true},
	} {
		var got []plan.Step
		for _, o := range retain(older, Checkpoint{Step: 100, Generation: 4}, JumpReach, c.keep, c.line, !c.once) {
			got = append(got, o.Step)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("keep %d, a line of %d: %v, want %v", c.keep, c.line, got, c.want)
		}
	}
	var many []Checkpoint
	for g := plan.Generation(40); g > 0; g-- {
		many = append(many, Checkpoint{Step: plan.Step(g), Generation: g})
	}
	if stay := retain(many, Checkpoint{Step: 41, Generation: 41}, JumpReach, 3, len(many), true); len(stay) > MaxOlder || stay[0].Step != 40 {
		t.Errorf("%d older ones, at most %d", len(stay), MaxOlder)
	}
}

// TestWhatIsInMemoryIsLostWithItsProcess: it counts for the checkpoint while the process runs, and for no death that is still to come.
func TestWhatIsInMemoryIsLostWithItsProcess(t *testing.T) {
	s := restorable()
	for i := range s.Members {
		s.Members[i].ProcessEpoch = 7
	}
	s.Checkpoint = checkpointOf(20, 2, by("ab"), by("bd"), by("cd"))
	if line := RecoveryLine(s); len(line) != 1 {
		t.Fatalf("the line goes back to step %d where all is stored twice", line[len(line)-1].Step)
	}
	of := StageSaved{Step: 20, Generation: 2}
	s.Checkpoint.Layers[0] = LayerRef{Layer: 0, SizeBytes: 1, Chunks: []plan.Hash{{20, 0}}, Holders: by("ab"), Unstored: []Process{{"a", 7}}}
	if line := RecoveryLine(s); len(line) == 1 || len(s.Checkpoint.Lost(s)) > 0 {
		t.Errorf("a line of %d, %v lost: one member has the layer in memory", len(line), s.Checkpoint.Lost(s))
	}
	s.Checkpoint.Layers[0].Holders = by("a")
	if got := Restore(s); len(got.Layers) > 0 {
		t.Errorf("%+v while the process runs", got)
	}
	gone, again, back := s.without("a"), s, s
	m, _ := s.Member("a")
	m.ProcessEpoch, m.State = 8, Joining
	again = again.withMember(m)
	for name, s := range map[string]State{"gone": gone, "started again": again} {
		l := s.Checkpoint.Layers[0]
		if !slices.Equal(s.Checkpoint.Lost(s), []int{0}) || len(l.Kept(s)) > 0 || !slices.Equal(Restore(s).Layers, []int{0}) {
			t.Errorf("%s: %v lost, kept by %v, restored: %+v", name, s.Checkpoint.Lost(s), l.Kept(s), Restore(s))
		}
	}
	m.ProcessEpoch, m.State = 7, Active
	if back = gone.withMember(m); len(back.Checkpoint.Lost(back)) > 0 {
		t.Error("a member that was silent has lost its memory")
	}
	of.Layers = []LayerRef{{Layer: 0, SizeBytes: 1, Chunks: []plan.Hash{{20, 0}}, Holders: by("a")}}
	if err := Authorize(again, Author{Peer: "b"}, of); err == nil {
		t.Error("somebody else says that it is stored")
	}
	if err := Authorize(again, Author{Peer: "a"}, of); err != nil {
		t.Errorf("who was started again has found it on its disk: %v", err)
	}
	of.Unstored = 8
	of.Layers[0].Holders = by("b")
	if err := Authorize(again, Author{Peer: "a"}, of); err == nil {
		t.Error("one says what another one has in memory")
	}
	of.Unstored, of.Layers[0].Holders = 0, by("a")
	if again, err := Apply(again, of); err != nil || len(again.Checkpoint.Lost(again)) > 0 || again.Checkpoint.Layers[0].Unstored != nil {
		t.Errorf("%+v, %v after it was stored", again.Checkpoint.Layers[0], err)
	}
}

// TestWhatIsInMemoryEndsNoRun: the last step has to be stored, and who has lost a layer with its process gives up its place as a holder. A whole copy is stored.
func TestWhatIsInMemoryEndsNoRun(t *testing.T) {
	s := restorable()
	s.Owners = by("b")
	for _, p := range by("efghijk") {
		s = s.withMember(Member{Peer: p, State: Active})
	}
	s.Run.Train.Steps = 20
	author := Author{Peer: s.Substitute.Coordinator(s.Plan)}
	if err := Authorize(s, author, Finish{}); err != nil {
		t.Fatal(err)
	}
	l := &s.Checkpoint.Layers[1]
	l.Unstored = []Process{{"b", 7}}
	if err := Authorize(s, author, Finish{}); !errors.Is(err, ErrForbidden) {
		t.Errorf("%v: one layer is in memory alone", err)
	}
	kept, err := Apply(s, KeptWhole{Peer: "b", Step: 20, Generation: 2})
	if err != nil || !kept.Checkpoint.Layers[1].StoredBy("b") {
		t.Errorf("%+v, %v after all of it was stored", kept.Checkpoint.Layers[1], err)
	}
	if err := Authorize(kept, author, Finish{}); err != nil {
		t.Error(err)
	}
	l.Holders = by("abefghij")
	saved := StageSaved{Layers: []LayerRef{{Layer: 1, SizeBytes: l.SizeBytes, Chunks: l.Chunks, Holders: by("k")}}}
	merged, err := s.Checkpoint.merge(s, saved)
	if got := merged.Layers[1]; err != nil || !slices.Equal(got.Holders, by("aefghijk")) || got.Unstored != nil {
		t.Errorf("%+v, %v; want k in the place of b", got, err)
	}
	l.Unstored[0].ProcessEpoch = 0
	if merged, err = s.Checkpoint.merge(s, saved); err != nil || !slices.Equal(merged.Layers[1].Holders, by("abefghij")) {
		t.Errorf("%+v, %v while the process of b runs", merged.Layers[1], err)
	}
}
