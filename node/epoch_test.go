package node

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestEpochsGrow wants each start to have a larger epoch than the one before, whatever the clock says, with room for the
// messages between.
func TestEpochsGrow(t *testing.T) {
	dir, now := t.TempDir(), time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	last := uint64(0)
	for _, step := range []struct {
		clock  time.Duration
		damage bool
	}{
		{0, false},
		{-24 * time.Hour, false},
		{-24 * time.Hour, false},
		{365 * 24 * time.Hour, false},
		{0, false},
		{-100 * 365 * 24 * time.Hour, false},
		{2 * 365 * 24 * time.Hour, true},
	} {
		if step.damage {
			for _, name := range []string{epochFile, epochFile + ".copy"} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte("?"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		epoch, err := nextEpoch(dir, now.Add(step.clock))
		if err != nil {
			t.Fatal(err)
		}
		if epoch < last+epochRoom {
			t.Errorf("with the clock off by %v the epoch is %d after %d", step.clock, epoch, last)
		}
		last = epoch
	}
	if _, err := nextEpoch(dir, time.Date(2400, 1, 1, 0, 0, 0, 0, time.UTC)); err == nil {
		t.Error("a clock in the year 2400 gives an epoch that is not exact in JSON")
	}
}
