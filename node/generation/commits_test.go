package generation

import (
	"bytes"
	"context"
	"testing"

	"pnode/pipeline"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// FuzzCommitRequest: whatever a member asks, it gets nothing but the commit of the step and generation that it names, and the
// newest one of a lost coordinator if it goes on in that one's place.
func FuzzCommitRequest(f *testing.F) {
	commits := &pipeline.Commits{}
	kept, last := wire.Commit{Step: 3, Loss: 2, GradScale: 1}, wire.AppendCommit(nil, wire.Commit{Step: 4, Loss: 1, GradScale: 1})
	commits.Put(2, kept)
	commits.Settle(2, last)
	lost := plan.Placement{Peer: "lost", Device: "cpu"}
	state := consensus.State{
		Plan:       plan.Plan{Generation: 2, Replicas: []plan.Pipeline{{Stages: []plan.Placement{lost}}}},
		Substitute: &consensus.Substitute{Generation: 2, Lost: "lost", By: "substitute"},
	}
	s := served{commits, func() consensus.State { return state }}
	over, end := context.WithCancel(f.Context())
	end() // it waits for nothing
	for _, request := range []string{`{"generation":2,"step":3}`, `{"generation":2}`, `{"generation":1,"step":3}`, `{"generation":2,"step":3,"more":1}`, `{}`, `[`} {
		f.Add([]byte(request))
	}
	f.Fuzz(func(t *testing.T, request []byte) {
		if answer, err := s.commit(over, "anybody", request); err == nil && !bytes.Equal(answer, wire.AppendCommit(nil, kept)) {
			t.Errorf("%q is answered with %x", request, answer)
		}
		if answer, err := s.lastCommit(over, "anybody", request); err == nil {
			t.Errorf("%q of anybody is answered with %x", request, answer)
		}
		if answer, err := s.lastCommit(over, "substitute", request); err == nil && !bytes.Equal(answer, last) {
			t.Errorf("%q is answered with %x", request, answer)
		}
	})
}

// TestCommitsAreGivenToWhomTheyAreDue: the seeds of the fuzz test by their answers.
func TestCommitsAreGivenToWhomTheyAreDue(t *testing.T) {
	commits := &pipeline.Commits{}
	commits.Put(2, wire.Commit{Step: 3})
	s := served{commits, func() consensus.State { return consensus.State{} }}
	for request, given := range map[string]bool{
		`{"generation":2,"step":3}`: true, `{"generation":1,"step":3}`: false, `{"generation":2,"step":4}`: false,
		`{"generation":2,"step":3,"more":1}`: false, `[`: false,
	} {
		if answer, err := s.commit(t.Context(), "anybody", []byte(request)); (err == nil) != given || (len(answer) > 0) != given {
			t.Errorf("%s: %x, %v", request, answer, err)
		}
	}
}

// TestTheNewestCommitIsRepeated: the newest one that any member has, unless two have others of one step. The one after the last update
// names no step, and is newer than all that do.
func TestTheNewestCommitIsRepeated(t *testing.T) {
	state := consensus.State{Run: &plan.RunSpec{Train: plan.TrainSpec{Steps: 30}}}
	two, three := 2.0, 3.0
	last, closing := wire.Commit{Step: 30, Loss: 2}, wire.Commit{HeldOut: &two}
	for name, c := range map[string]struct {
		a, b *wire.Commit
		step plan.Step // 0: of none
		by   plan.PeerID
		fits bool
	}{
		"nobody has any":                   {nil, nil, 0, "", true},
		"one has a step's":                 {nil, &last, 30, "b", true},
		"both have it":                     {&last, &last, 30, "a", true},
		"one has an older one":             {&wire.Commit{Step: 29}, &last, 30, "b", true},
		"both have others":                 {&last, &wire.Commit{Step: 30, Loss: 4}, 0, "", false},
		"one has that after all steps":     {&closing, nil, 31, "a", true},
		"both have that":                   {&closing, &closing, 31, "a", true},
		"it is newer than the last step's": {&last, &closing, 31, "b", true},
		"both have others after all steps": {&closing, &wire.Commit{HeldOut: &three}, 0, "", false},
	} {
		var commits [][]byte
		for _, commit := range []*wire.Commit{c.a, c.b} {
			var encoded []byte
			if commit != nil {
				encoded = wire.AppendCommit(nil, *commit)
			}
			commits = append(commits, encoded)
		}
		got, err := newestOf(state, []plan.PeerID{"a", "b"}, commits)
		if (err == nil) != c.fits || got.step != c.step || got.by != c.by {
			t.Errorf("%s: step %d of %q, %v; want step %d of %q", name, got.step, got.by, err, c.step, c.by)
		}
	}
	if _, err := newestOf(state, []plan.PeerID{"a"}, [][]byte{{1}}); err == nil {
		t.Error("half a commit counts")
	}
}
