package node

import (
	"crypto/sha256"
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pnode/node/api"
	"pnode/node/ledger"
	"pnode/planner/plan"
)

// TestEachInvariantOfFleetsCanFail: two nodes train, and all is well. Then each thing that fleets are checked for is broken on purpose,
// while they run or in the ledgers that they leave, and the check that is for it finds it.
func TestEachInvariantOfFleetsCanFail(t *testing.T) {
	size := fleetSize{Steps: 24, Stages: 2, Replicas: 1, CheckpointEvery: 4, MinNodes: 2}
	known := undisturbed(t, size)
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, size, known.again())
		founder := f.add()
		f.add().join(founder.found())
		f.until("step 6 and a checkpoint", time.Hour, func() bool { return f.truth.reached() >= 6 && f.checkpoint().Step > 0 })
		for name, c := range map[string]struct {
			want  string
			spoil func(f *fleet, n *Node)
		}{
			"a second leader": {"lead in term", func(f *fleet, n *Node) {
				leader, term, _ := n.raft.Leader()
				f.truth.led[numbered[plan.Term]{number: term}] = "not " + leader
				f.oneLeads()
			}},
			"another plan of the generation": {"has another plan of generation", func(f *fleet, n *Node) {
				f.truth.plans[numbered[plan.Generation]{number: n.raft.State().Plan.Generation}] = sha256.Sum256([]byte("another plan"))
				f.truth.see(founder.name(), n, api.Event{})
			}},
			"a loss whose last bit differs": {"has loss", func(f *fleet, n *Node) {
				f.truth.see(founder.name(), n, api.Event{Kind: api.KindStep, Step: 3, Loss: math.Nextafter(known.commits[3].Loss(), 0)})
			}},
			"a layer of which no holder has a chunk": {"no holder of", func(f *fleet, _ *Node) {
				c := f.checkpoint()
				c.Layers = slices.Clone(c.Layers)
				c.Layers[1].Chunks = []plan.Hash{sha256.Sum256([]byte("no chunk"))}
				f.held(c)
			}},
			"a layer without a holder": {"no holder of", func(f *fleet, _ *Node) {
				c := f.checkpoint()
				c.Layers = slices.Clone(c.Layers)
				c.Layers[1].Holders = nil
				f.held(c)
			}},
			"a node that stands still without a word": {"does not say why", func(f *fleet, _ *Node) {
				f.moved = f.truth.reached()
				for range 2 { // looks
					f.movedAt = time.Now().Add(-standsStill)
					f.explained()
				}
			}},
		} {
			broken := *f
			broken.truth, broken.restored, broken.movedAt = known.again(), 0, time.Time{}
			if broken.look(); broken.truth.wrong() != nil {
				t.Fatalf("before it is broken: %v", broken.truth.wrong())
			}
			c.spoil(&broken, founder.node())
			if err := broken.truth.wrong(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: found %v, want %q", name, err, c.want)
			}
		}
		f.completes()
		f.breakLedgers(known)
		f.cutLedger()
	})
}

// breakLedgers has the ledgers of a run that has ended audited, each time with another thing wrong in them.
func (f *fleet) breakLedgers(known *truth) {
	f.Helper()
	founder := f.members[0].dir
	run, err := LoadRun(founder)
	if err != nil {
		f.Fatal(err)
	}
	micros := func(change func([]plan.Micro) []plan.Micro) func(*ledger.Contents) {
		return func(c *ledger.Contents) {
			work := *c.Entries[4].Work
			work.Stages = slices.Clone(work.Stages)
			work.Stages[0].Micros = change(slices.Clone(work.Stages[0].Micros))
			c.Entries[4].Work = &work
		}
	}
	twice := micros(func(m []plan.Micro) []plan.Micro { return append(m, m[0]) })
	for name, c := range map[string]struct {
		want   string
		change func(*ledger.Contents)
	}{
		"a sample that entered twice": {"1 doubled", twice},
		"a sample that did not enter": {"1 samples lost", micros(func(m []plan.Micro) []plan.Micro { return m[1:] })},
		"a step that nobody computed": {"1 step before step 6 missing", func(c *ledger.Contents) {
			c.Entries = slices.DeleteFunc(c.Entries, func(e ledger.Entry) bool { return e.Step == 5 })
		}},
		"a commit whose last bit differs": {"has commit", func(c *ledger.Contents) { c.Entries[4].LossBits++ }},
		"a commit that was told and is another": {"told that step", func(c *ledger.Contents) {
			c.Told = append(c.Told, ledger.Told{By: "b", Committed: ledger.Committed{Generation: 1, Commit: ledger.CommitOf(5, 1, 1)}})
		}},
	} {
		dirs := []string{f.rewrite(founder, c.change)}
		if _, err := known.again().audit(dirs, founder, run); err == nil || !strings.Contains(err.Error(), c.want) {
			f.Errorf("%s: found %v, want %q", name, err, c.want)
		}
	}
	if err := known.again().soFar([]string{f.rewrite(founder, twice)}, run); err == nil || !strings.Contains(err.Error(), "1 samples doubled") {
		f.Errorf("a sample that entered twice, while the run goes on: found %v", err)
	}
	other := known.again()
	other.weights = maps.Clone(known.weights)
	other.weights[2] = []plan.Hash{sha256.Sum256([]byte("other weights"))}
	if _, err := other.audit(f.dirs(), founder, run); err == nil || !strings.Contains(err.Error(), "differs from the undisturbed run's") {
		f.Errorf("other weights: found %v", err)
	}
}

// cutLedger cuts a third of the founder's ledger off and audits it alone, and with those of all others.
func (f *fleet) cutLedger() {
	f.Helper()
	founder := f.members[0].dir
	file := filepath.Join(founder, ledger.FileName)
	whole, err := os.ReadFile(file)
	if err != nil {
		f.Fatal(err)
	}
	if report, err := Audit([]string{founder}); err != nil || report.Err() != nil || len(report.Notes) > 0 {
		f.Errorf("a whole ledger: %v, %v, notes %q", err, report.Err(), report.Notes)
	}
	if err := os.WriteFile(file, whole[:len(whole)*2/3], 0o600); err != nil {
		f.Fatal(err)
	}
	report, err := Audit([]string{founder})
	if err != nil || report.Err() == nil || !strings.Contains(report.Err().Error(), "its checkpoint is of step 24") || report.Lost == 0 {
		f.Errorf("a cut ledger: %v, %v, %d samples lost", err, report.Err(), report.Lost)
	}
	report, err = Audit(f.dirs())
	if err != nil || report.Err() != nil || len(report.Notes) != 1 || !strings.Contains(report.Notes[0], "the other ledgers prove the steps") {
		f.Errorf("a cut ledger and a whole one: %v, %v, notes %q", err, report.Err(), report.Notes)
	}
	if err := os.WriteFile(file, whole, 0o600); err != nil {
		f.Fatal(err)
	}
}

// rewrite writes the ledger in a folder once more, with a change, and returns the folder of that one.
func (f *fleet) rewrite(dir string, change func(*ledger.Contents)) string {
	f.Helper()
	c, err := ledger.Read(dir)
	if err != nil {
		f.Fatal(err)
	}
	change(&c)
	other := f.TempDir()
	r := ledger.New(other, c.Head, slog.New(slog.DiscardHandler))
	for _, p := range c.Plans {
		r.Plan(p.Plan, p.Reasons)
	}
	for _, e := range c.Entries {
		r.Step(*e.Work, e.Commit)
	}
	for _, told := range c.Told {
		r.Told(told.By, ledger.Word{Commits: []ledger.Committed{told.Committed}}, nil)
	}
	if err := r.Close(); err != nil {
		f.Fatal(err)
	}
	return other
}
