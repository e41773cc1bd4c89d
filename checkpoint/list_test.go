package checkpoint

import (
	"errors"
	"sync"
	"testing"

	"pnode/planner/plan"
)

// TestListingDuringEverything lists as `checkpoints ls` does of a running node: newest
// first and without an error, whatever is written, dropped or swept meanwhile, and
// ErrClosed once the store is closed.
func TestListingDuringEverything(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	var writers, readers sync.WaitGroup
	writers.Go(func() {
		for step := plan.Step(1); step <= 40; step++ {
			if err := writeStep(s, step, int(step)); err != nil {
				t.Error(err)
				return
			}
			if err := s.Retain(3); err != nil {
				t.Error(err)
			}
			if _, err := s.Sweep(); err != nil {
				t.Error(err)
			}
		}
	})
	for range 3 {
		readers.Go(func() {
			for {
				all, err := s.Manifests()
				if errors.Is(err, ErrClosed) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				for i := 1; i < len(all); i++ {
					if all[i].Step >= all[i-1].Step {
						t.Errorf("step %d after %d", all[i].Step, all[i-1].Step)
					}
				}
			}
		})
	}
	writers.Wait()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	readers.Wait()
}
