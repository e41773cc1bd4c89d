package node

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"pnode/node/config"
	"pnode/node/ledger"
	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/twofold"
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
	sampler, err := OpenSampler(dir)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := sampler.Step(3)
	if err != nil || len(rows) != run.Train.Micros*run.Train.MicroBatch {
		t.Errorf("%d rows, %v", len(rows), err)
	}
	if err := Reopen(dir, run.Train.Steps-1); !errors.Is(err, config.ErrInvalid) || !strings.Contains(err.Error(), "can only be moved to a later one") {
		t.Errorf("an earlier end: %v", err)
	}
	path := filepath.Join(dir, runFile)
	for _, damage := range []string{"", "{}x", `{"unknown":1}`} {
		for _, file := range []string{path, path + ".copy"} {
			if err := os.WriteFile(file, []byte(damage), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := OpenSampler(dir); err == nil || !strings.Contains(err.Error(), "is damaged") || !strings.Contains(err.Error(), runRemedy) {
			t.Errorf("%q: %v", damage, err)
		}
	}
	if lost := lostRun(dir); !strings.Contains(lost, path) {
		t.Errorf("after damage: %q", lost)
	}
	if err := saveRun(dir, run); err != nil {
		t.Fatal(err)
	}
	if lost := lostRun(dir); lost != "" {
		t.Errorf("written again: %q", lost)
	}
}

// TestVerifyFiles: each damaged file of a folder is named with what is wrong and what helps, and stays as it is.
func TestVerifyFiles(t *testing.T) {
	dir := t.TempDir()
	log := slog.New(slog.DiscardHandler)
	record := ledger.New(dir, ledger.Head{Run: "r", Peer: "a"}, log)
	record.Plan(plan.Plan{Run: "r", Generation: 1}, []string{"first plan"})
	if err := record.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{admission.IdentityFile, admission.OwnerFile, config.MembershipFile, runFile, epochFile} {
		if err := twofold.Write(dir, name, []byte(name)); err != nil {
			t.Fatal(err)
		}
	}
	if compared, damaged := VerifyFiles(dir); len(compared) != 6 || len(damaged) != 0 {
		t.Fatalf("compared %q, damaged: %q", compared, damaged)
	}
	damage := func(name string) {
		t.Helper()
		path := filepath.Join(dir, name)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		data[len(data)/2] ^= 1
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{runFile, runFile + ".copy", config.MembershipFile + ".copy", ledger.FileName} {
		damage(name)
	}
	for _, name := range []string{admission.IdentityFile, admission.IdentityFile + ".copy"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	damagedRun := [][2]string{{runFile, runRemedy}, {runFile + ".copy", runRemedy}}
	missingRun := [][2]string{{runFile, "missing, and so is its copy: " + runRemedy}}
	for i, run := range [][][2]string{damagedRun, damagedRun, missingRun, missingRun} { // nothing is changed
		if i == 2 {
			if err := twofold.Remove(dir, runFile); err != nil {
				t.Fatal(err)
			}
		}
		_, damaged := VerifyFiles(dir)
		want := [][2]string{
			{admission.IdentityFile, "missing, and so is its copy: bring it back from a backup"},
			{config.MembershipFile + ".copy", "the other copy is whole"},
		}
		want = append(append(want, run...), [2]string{ledger.FileName, "`pnode audit`"})
		if len(damaged) != len(want) {
			t.Fatalf("damaged: %q", damaged)
		}
		for i, w := range want {
			if !strings.HasPrefix(damaged[i], filepath.Join(dir, w[0])+": ") || !strings.Contains(damaged[i], w[1]) {
				t.Errorf("%s, want %q", damaged[i], w)
			}
		}
	}
}

// TestWholeElsewhere: a member's folder without all layers says who has them, and how they come here while the run goes on.
func TestWholeElsewhere(t *testing.T) {
	for want, m := range map[string]membership{
		"desk, which keeps it whole, has the model: there `pnode export OUT`; or go on here with `pnode join --dir /x`, and then `pnode fetch --dir /x` brings it": {OwnerNames: []string{"desk"}},
		"desk or lab, which keeps it whole, has the model: there `pnode export OUT`":                                                                               {OwnerNames: []string{"desk", "lab"}, Finished: 30},
		"the machine that began the run has the model: there `pnode export OUT`":                                                                                   {Finished: 30},
	} {
		if got := m.wholeElsewhere("/x"); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// TestAFolderWithoutTheFinalModel: a member of a finished run, whose folder has an older checkpoint whole, says so and where the final one is.
func TestAFolderWithoutTheFinalModel(t *testing.T) {
	for finished, told := range map[plan.Step]bool{0: false, 23: false, 30: true} {
		if got := (membership{Finished: finished, OwnerNames: []string{"desk"}}).olderThanFinal(23, "/run"); (got != "") != told ||
			told && got != "this is step 23, the newest that is whole here, of a run that was finished at step 30: desk, which keeps it whole, has the model: there `pnode export OUT`" {
			t.Errorf("finished at %d: %q", finished, got)
		}
	}
}
