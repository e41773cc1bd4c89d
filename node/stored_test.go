package node

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pnode/node/api"
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
	identity, noIdentity := admission.LoadIdentity(dir)
	owner, noOwner := admission.CreateOwner(dir)
	capability, refused := owner.Capability("r", identity, ownMembership, time.Now())
	member := membership{Run: "r", OwnerKey: owner.PublicKey(), Capability: capability}
	if err := errors.Join(noIdentity, noOwner, refused, member.save(dir), saveRun(dir, plan.RunSpec{}), twofold.Write(dir, epochFile, []byte("7"))); err != nil {
		t.Fatal(err)
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

// TestVerifyReadsKeys: a key of which both copies lost text and checksum is damaged, and said to be.
func TestVerifyReadsKeys(t *testing.T) {
	dir := t.TempDir()
	if _, err := admission.CreateOwner(dir); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "hello"} {
		for _, suffix := range []string{"", ".copy"} {
			if err := os.WriteFile(filepath.Join(dir, admission.OwnerFile+suffix), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, damaged := VerifyFiles(dir)
		if of := slices.DeleteFunc(damaged, func(d string) bool { return !strings.Contains(d, admission.OwnerFile) }); len(of) != 2 || !strings.Contains(of[0], "bring it back from a backup") {
			t.Errorf("%q in both: %q", text, damaged)
		}
	}
}

// TestAuditCountsAFolderOnce: whatever path leads to it. A folder that is not there is no node that never learned a plan.
func TestAuditCountsAFolderOnce(t *testing.T) {
	root := t.TempDir()
	dir, link, file := filepath.Join(root, "a"), filepath.Join(root, "link"), filepath.Join(root, "file")
	record := ledger.New(dir, ledger.Head{Run: "r", Peer: "a"}, slog.New(slog.DiscardHandler))
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Symlink(dir, link), os.WriteFile(file, nil, 0o600), saveRun(dir, plan.RunSpec{})); err != nil {
		t.Fatal(err)
	}
	record.Plan(plan.Plan{Run: "r", Generation: 1}, nil)
	if err := record.Close(); err != nil {
		t.Fatal(err)
	}
	if report, err := Audit([]string{dir}); err != nil || len(report.Nodes) != 1 {
		t.Fatalf("one folder: %v, %+v", err, report.Nodes)
	}
	for _, again := range []string{dir, dir + "/", link, filepath.Join(root, "..", filepath.Base(root), "a")} {
		if _, err := Audit([]string{dir, again}); !errors.Is(err, ErrSameFolder) || !strings.Contains(err.Error(), again) {
			t.Errorf("%s: %v", again, err)
		}
	}
	for _, c := range [][2]string{{filepath.Join(root, "none"), "there is no such folder"}, {file, "is a file"}} {
		if _, err := Audit([]string{dir, c[0]}); !errors.Is(err, ErrNoLedger) || !strings.Contains(err.Error(), c[0]) || !strings.Contains(err.Error(), c[1]) {
			t.Errorf("%s: %v", c[0], err)
		}
	}
}

// TestWholeElsewhere: a member's folder without all layers says who has them, and how they come here while the run goes on.
func TestWholeElsewhere(t *testing.T) {
	for want, m := range map[string]membership{
		"desk, which keeps it whole, has the model: there `pnode export OUT`; or go on here with `pnode join --dir /x`, and then `pnode fetch --dir /x` brings it": {OwnerNames: []string{"desk"}},
		"desk or lab, which keeps it whole, has the model: there `pnode export OUT`":                                                                               {OwnerNames: []string{"desk", "lab"}, Finished: 30},
		"this is an owner's folder, which lacks what it should keep: go on here with `pnode train --resume --dir /x`, which brings it from machines that have it, or goes back to a checkpoint that is whole": {
			Name: "desk", OwnerNames: []string{"desk"},
		},
		"lab, which keeps it whole, has the model: there `pnode export OUT`; or go on here with `pnode train --resume --dir /x`, and then `pnode fetch --dir /x` brings it": {
			Name: "desk", OwnerNames: []string{"desk", "lab"},
		},
		"this is an owner's folder, which lacks what it should keep: bring the folders of the run's other nodes here": {Name: "desk", OwnerNames: []string{"desk"}, Finished: 30},
		"the machine that began the run has the model: there `pnode export OUT`":                                      {Finished: 30},
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

// TestRecoverOfAStoppedNodeNamesOneRemedy: a plain start where it ended in good order, the recovery by itself where it was killed.
func TestRecoverOfAStoppedNodeNamesOneRemedy(t *testing.T) {
	for _, c := range []struct {
		files     []string
		want, not string
	}{
		{[]string{config.MembershipFile}, "pnode join --dir ", "--on-lost-majority"},
		{[]string{config.MembershipFile, admission.OwnerFile}, "pnode train --resume --dir ", "--on-lost-majority"},
		{[]string{config.MembershipFile, api.AddressFile}, "pnode train --resume --on-lost-majority recover-after=10m --dir ", "good order"},
	} {
		dir := t.TempDir()
		for _, name := range c.files {
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err := RecoverStopped(dir)
		if !errors.Is(err, api.ErrNoNode) || strings.Count(err.Error(), "`pnode train")+strings.Count(err.Error(), "`pnode join") != 1 || !strings.Contains(err.Error(), c.want+dir) || strings.Contains(err.Error(), c.not) {
			t.Errorf("%q: %v", c.files, err)
		}
	}
}
