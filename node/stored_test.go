package node

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"pnode/node/config"
	"pnode/planner/plan"
)

func TestLedgerOfAFolder(t *testing.T) {
	dir := t.TempDir()
	if _, err := OpenSampler(dir); !errors.Is(err, ErrNoRun) {
		t.Errorf("an empty folder: %v", err)
	}
	data := plan.DataSpec{Chunks: make([]plan.Hash, 1), SizeBytes: 1 << 20, HeldOutPermille: 50}
	model, err := config.Default().Model()
	if err != nil {
		t.Fatal(err)
	}
	run, err := config.Default().RunSpec(model, data, "r")
	if err != nil {
		t.Fatal(err)
	}
	if err := saveRun(dir, run); err != nil {
		t.Fatal(err)
	}
	if got, err := LoadRun(dir); err != nil || !reflect.DeepEqual(got, run) {
		t.Errorf("%+v, %v; want %+v", got, err, run)
	}
	ledger, err := OpenSampler(dir)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := ledger.Step(3)
	if err != nil || len(rows) != run.Train.Micros*run.Train.MicroBatch {
		t.Errorf("%d rows, %v", len(rows), err)
	}
	path := filepath.Join(dir, runFile)
	for _, damage := range []string{"", "{}x", `{"unknown":1}`} {
		for _, file := range []string{path, path + ".copy"} {
			if err := os.WriteFile(file, []byte(damage), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := OpenSampler(dir); err == nil || !strings.Contains(err.Error(), "is damaged") {
			t.Errorf("%q: %v", damage, err)
		}
	}
}
