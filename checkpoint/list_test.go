package checkpoint

import (
	"errors"
	"os"
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

// TestNewestOfAnOpenStore reads the newest manifest beside the process that has the store open: one that is damaged is passed over.
func TestNewestOfAnOpenStore(t *testing.T) {
	dir := t.TempDir()
	if _, err := Newest(dir); !errors.Is(err, ErrNotFound) {
		t.Errorf("no store: %v", err)
	}
	s := openStore(t, dir, Options{})
	for step := plan.Step(8); step <= 12; step++ {
		if err := writeStep(s, step, int(step)); err != nil {
			t.Fatal(err)
		}
	}
	if m, err := Newest(dir); err != nil || m.Step != 12 || m.Generation == 0 {
		t.Errorf("step %d of generation %d, %v", m.Step, m.Generation, err)
	}
	if err := os.WriteFile(s.catalog.manifestPath(12), []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if m, err := Newest(dir); err != nil || m.Step != 11 {
		t.Errorf("beside a damaged one: step %d, %v", m.Step, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
