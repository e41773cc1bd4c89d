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
