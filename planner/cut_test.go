package planner

import "testing"

// TestCutsAreSharedAndNotMadeAgain: a search that goes on from another one has the same pipe for the same devices, and a candidate takes
// the makespan of a pipe that another one has simulated.
func TestCutsAreSharedAndNotMadeAgain(t *testing.T) {
	in, p := fourNodes(t)
	s, err := searchFor(in, p)
	if err != nil {
		t.Fatal(err)
	}
	k, err := s.arrange(shape{1, 3}, []int{0, 1, 2})
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.of(s.problem).arrange(shape{1, 3}, []int{0, 1, 2})
	if err != nil {
		t.Fatal(err)
	}
	if again.pipes[0] != k.pipes[0] {
		t.Fatal("the same devices are cut again")
	}
	if other, err := s.arrange(shape{1, 3}, []int{1, 0, 2}); err != nil || other.pipes[0] == k.pipes[0] {
		t.Fatalf("other devices have the same cut: %v", err)
	}
	if err := k.simulate(); err != nil {
		t.Fatal(err)
	}
	made := k.pipes[0].passes[k.shares[0]]
	if made[0].End != k.result.Pipelines[0] || made[0].End <= 0 {
		t.Fatalf("passes until %d are kept as %v", k.result.Pipelines[0], made)
	}
	made[0].End++
	if err := again.simulate(); err != nil || again.step() != k.step()+1 {
		t.Errorf("the same pipe was simulated again: %v", err)
	}
}
