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

// testMemberships returns the memberships of a run's founder, of an owner by invite and of a member; each knows the owners' machines by
// these names.
func testMemberships(t *testing.T, names ...string) (founder, invited, member membership) {
	t.Helper()
	owner, all := testOwner(t), []*membership{&founder, &invited, &member}
	var peers []plan.PeerID
	for i, m := range all {
		identity := testIdentity(t)
		invite, err := owner.Invite(admission.InviteOptions{Run: "r", Owner: i == 1}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		capability, err := invite.Redeem(identity, time.Now())
		if i == 0 {
			capability, err = owner.Capability("r", identity, ownMembership, time.Now())
		}
		if err != nil {
			t.Fatal(err)
		}
		*m, peers = membership{Run: "r", OwnerKey: owner.PublicKey(), Capability: capability}, append(peers, identity.Peer())
	}
	for _, m := range all {
		for i, name := range names {
			m.Owners, m.OwnerNames = append(m.Owners, peers[i]), append(m.OwnerNames, strings.Replace(name, "PEER", peers[i].Short(), 1))
		}
	}
	return founder, invited, member
}

// TestWholeElsewhere: a folder without all layers says who has them, and how they come here while the run goes on.
func TestWholeElsewhere(t *testing.T) {
	desk, _, one := testMemberships(t, "desk")
	_, lab, two := testMemberships(t, "desk", "lab")
	ended, endedHere, nameless := two, desk, one
	endedHere.Known = []string{"/ip4/10.0.0.2/udp/4001/quic-v1"}
	alone := desk
	alone.Finished, ended.Finished, endedHere.Finished, nameless.Finished, nameless.Owners, nameless.OwnerNames = 30, 30, 30, 30, nil, nil
	for want, m := range map[string]membership{
		"desk, which keeps it whole, has the model: there `pnode export OUT`; or go on here with `pnode join --dir /x`, and then `pnode fetch --dir /x` brings it":                                            one,
		"desk or lab, which keeps it whole, has the model: there `pnode export OUT`":                                                                                                                          ended,
		"this is an owner's folder, which lacks what it should keep: go on here with `pnode train --resume --dir /x`, which brings it from machines that have it, or goes back to a checkpoint that is whole": desk,
		"desk, which keeps it whole, has the model: there `pnode export OUT`; or go on here with `pnode train --resume --dir /x`, and then `pnode fetch --dir /x` brings it":                                  lab,
		"this is an owner's folder, which lacks what it should keep: bring the folders of the run's other nodes here":                                                                                         endedHere,
		"no other node was in the run: bring this folder back from a backup, or train again in another one":                                                                                                   alone,
		"the machine that began the run has the model: there `pnode export OUT`":                                                                                                                              nameless,
	} {
		if got := m.wholeElsewhere("/x"); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// TestAnOwnerIsKnownByItsCapability: whatever its machine is called, also where another one has the same name, and as the folder is read again.
func TestAnOwnerIsKnownByItsCapability(t *testing.T) {
	founder, invited, member := testMemberships(t, "desk PEER", "desk PEER")
	first, second := founder.OwnerNames[0], founder.OwnerNames[1]
	for name, c := range map[string]struct {
		kept   membership
		own    bool
		others []string
	}{
		"founder":       {founder, true, []string{second}},
		"by an invite":  {invited, true, []string{first}},
		"of that name":  {member, false, []string{first, second}},
		"nothing known": {membership{}, false, nil},
	} {
		c.kept.Name = "desk"
		dir := t.TempDir()
		if err := c.kept.save(dir); err != nil {
			t.Fatal(err)
		}
		kept, err := loadMembership(dir)
		if own, others := kept.owner(); (err == nil) != (c.kept.Run != "") || own != c.own || !slices.Equal(others, c.others) {
			t.Errorf("%s: an owner's: %t, others %q, %v; want %t, %q", name, own, others, err, c.own, c.others)
		}
		want := config.WayBack(dir, c.own)
		if got := StartAgain(dir); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	founder.OwnerNames[1] = "desk\x1b[31m"
	dir := t.TempDir()
	if err := founder.save(dir); err != nil {
		t.Fatal(err)
	}
	kept, err := loadMembership(dir)
	if _, others := kept.owner(); err != nil || !slices.Equal(others, []string{founder.Owners[1].Short()}) {
		t.Errorf("a name that no machine has is read as %q, %v", others, err)
	}
}

// TestAFolderWithoutTheFinalModel: a member of a finished run, whose folder has an older checkpoint whole, says so and where the final one is.
func TestAFolderWithoutTheFinalModel(t *testing.T) {
	_, _, member := testMemberships(t, "desk")
	for finished, told := range map[plan.Step]bool{0: false, 23: false, 30: true} {
		member.Finished = finished
		if got := member.olderThanFinal(23, "/run"); (got != "") != told ||
			told && got != "this is step 23, the newest that is whole here, of a run that was finished at step 30: desk, which keeps it whole, has the model: there `pnode export OUT`" {
			t.Errorf("finished at %d: %q", finished, got)
		}
	}
}

// TestRecoverOfAStoppedNodeNamesOneRemedy: a plain start where it ended in good order, the recovery by itself where it was killed.
func TestRecoverOfAStoppedNodeNamesOneRemedy(t *testing.T) {
	founder, invited, member := testMemberships(t, "desk", "lab")
	finished := founder
	finished.Finished = 3
	for _, c := range []struct {
		kept      membership
		killed    bool
		want, not string
	}{
		{member, false, "pnode join --dir ", "--on-lost-majority"},
		{founder, false, "pnode train --resume --dir ", "--on-lost-majority"},
		{invited, false, "pnode train --resume --dir ", "--on-lost-majority"},
		{finished, false, "pnode train --resume --steps 6 --dir ", "good order"},
		{member, true, "pnode train --resume --on-lost-majority recover-after=10m --dir ", "good order"},
	} {
		dir := t.TempDir()
		err := c.kept.save(dir)
		if c.killed {
			err = errors.Join(err, os.WriteFile(filepath.Join(dir, api.AddressFile), nil, 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
		err = RecoverStopped(dir)
		if !errors.Is(err, api.ErrNoNode) || strings.Count(err.Error(), "`pnode train")+strings.Count(err.Error(), "`pnode join") != 1 || !strings.Contains(err.Error(), c.want+dir) || strings.Contains(err.Error(), c.not) {
			t.Errorf("%q: %v", c.want, err)
		}
	}
}
