package ledger

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pnode/planner/plan"
)

var size = Size{Layers: 4, Micros: 4, MicroBatch: 2}

// planOf returns a plan of two stages on two nodes.
func planOf(g plan.Generation, start plan.Step, first, second plan.PeerID) plan.Plan {
	return plan.Plan{Run: "run", Generation: g, Start: start, Schedule: "1f1b", Replicas: []plan.Pipeline{{Micros: 4, Stages: []plan.Placement{
		{Peer: first, Device: "cpu", Layers: plan.LayerRange{First: 0, End: 2}},
		{Peer: second, Device: "cpu", Layers: plan.LayerRange{First: 2, End: 4}},
	}}}}
}

// records returns what a node of a plan writes for steps, with a loss of each.
func records(t *testing.T, peer plan.PeerID, write func(*Recorder)) Node {
	t.Helper()
	dir := t.TempDir()
	r := New(dir, Head{Run: "run", Peer: peer, Name: string(peer)}, slog.New(slog.DiscardHandler))
	write(r)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	c, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	return Node{Dir: dir, Contents: c}
}

// steps writes steps first to last of a plan by one node's worker, with those micro-batches.
func steps(r *Recorder, p plan.Plan, peer plan.PeerID, first, last plan.Step, micros ...plan.Micro) {
	id := plan.WorkerID{Peer: peer, Device: "cpu"}
	w := Work{Generation: p.Generation, Worker: id, By: peer}
	for _, s := range p.StagesOf(id) {
		w.Stages = append(w.Stages, StageWork{s, p.At(s).Layers, micros})
	}
	for s := first; s <= last; s++ {
		r.Step(w, CommitOf(s, 3+1/float64(s), 1))
	}
}

// told has a node write down what a member told of a plan's steps first to last, with losses as steps writes, raised by more.
func told(r *Recorder, p plan.Plan, by plan.PeerID, first, last plan.Step, more float64) {
	w := Word{Plans: []plan.Plan{p}}
	for s := first; s <= last; s++ {
		w.Commits = append(w.Commits, Committed{p.Generation, CommitOf(s, 3+1/float64(s)+more, 1)})
	}
	r.Told(by, w, r.Lineage())
}

// Plans whose steps TestAudit audits: of two nodes, of two others after a loss, of those with two steps again, and of two replicas.
var (
	one, two, again = planOf(1, 0, "a", "b"), planOf(2, 6, "a", "c"), planOf(3, 4, "a", "c")
	replicas        = plan.Plan{Run: "run", Generation: 1, Schedule: "1f1b", Replicas: []plan.Pipeline{{Micros: 2, Stages: whole("a")}, {FirstMicro: 2, Micros: 2, Stages: whole("b")}}}
	all             = []plan.Micro{0, 1, 2, 3}
)

func whole(p plan.PeerID) []plan.Placement {
	return []plan.Placement{{Peer: p, Device: "cpu", Layers: plan.LayerRange{First: 0, End: 4}}}
}

// audits holds what nodes a, b and c write, without those whose folders are lost, and what the audit of that reports.
var audits = map[string]struct {
	a, b, c func(*Recorder)
	want    Report
	problem string
}{
	"a node is lost with its folder": {
		a: func(r *Recorder) {
			r.Plan(one, nil)
			steps(r, one, "a", 1, 6, all...)
			r.Plan(two, nil)
			steps(r, two, "a", 7, 9, all...)
		},
		c:    func(r *Recorder) { r.Plan(two, nil); steps(r, two, "c", 7, 9, all...) },
		want: Report{Steps: 9, Samples: 72, Recorded: 24},
	},
	"a replica is lost with its folder, after the shares had changed": {
		a: func(r *Recorder) {
			r.Plan(replicas, nil)
			steps(r, replicas, "a", 1, 2, 0, 1)
			w := Work{Generation: 1, Worker: plan.WorkerID{Peer: "a", Device: "cpu"}, By: "a", Shares: []int{3, 1}}
			w.Stages = []StageWork{{plan.StageID{}, plan.LayerRange{First: 0, End: 4}, []plan.Micro{0, 1, 2}}}
			r.Step(w, CommitOf(3, 3, 1))
		},
		want: Report{Steps: 3, Samples: 24, Recorded: 14},
	},
	"steps are redone": {
		a: func(r *Recorder) {
			r.Plan(one, nil)
			steps(r, one, "a", 1, 6, all...)
			r.Plan(again, nil)
			steps(r, again, "a", 5, 9, all...)
		},
		b:    func(r *Recorder) { r.Plan(one, nil); steps(r, one, "b", 1, 7, all...) },
		c:    func(r *Recorder) { r.Plan(again, nil); steps(r, again, "c", 5, 9, all...) },
		want: Report{Steps: 9, Samples: 72, Recorded: 72, Redone: []Redone{{Generation: 1, After: 3, First: 5, Last: 7}}},
	},
	"a micro-batch is lost": {
		a: func(r *Recorder) { r.Plan(one, nil); steps(r, one, "a", 1, 2, all...) },
		b: func(r *Recorder) {
			r.Plan(one, nil)
			steps(r, one, "b", 1, 1, all...)
			steps(r, one, "b", 2, 2, 0, 1, 3)
		},
		want: Report{Steps: 2, Samples: 16, Recorded: 14, Lost: 2}, problem: "step 2 of generation 1: 2 samples lost, 0 doubled",
	},
	"a micro-batch is doubled": {
		a:    func(r *Recorder) { r.Plan(one, nil); steps(r, one, "a", 1, 2, 0, 1, 2, 3, 3) },
		want: Report{Steps: 2, Samples: 16, Doubled: 4}, problem: "step 1 of generation 1: 0 samples lost, 2 doubled",
	},
	"a step is missing": {
		a: func(r *Recorder) {
			r.Plan(one, nil)
			steps(r, one, "a", 1, 2, all...)
			steps(r, one, "a", 4, 4, all...)
		},
		want: Report{Steps: 4, Samples: 24, Lost: 8}, problem: "1 step before step 4 missing",
	},
	"two nodes tell different losses": {
		a: func(r *Recorder) { r.Plan(one, nil); steps(r, one, "a", 1, 2, all...) },
		b: func(r *Recorder) {
			r.Plan(one, nil)
			r.Step(Work{Generation: 1, Worker: plan.WorkerID{Peer: "b", Device: "cpu"}, By: "b"}, CommitOf(2, 3.5000000001, 1))
		},
		want: Report{Steps: 2, Samples: 16, Lost: 8, Differences: []Difference{{2, 1, "a", "3.5", 1, "b", "3.5000000001"}}}, problem: "step 2",
	},
	"all who computed a step are gone with their folders": {
		c: func(r *Recorder) {
			told(r, one, "a", 1, 6, 0)
			told(r, one, "b", 1, 4, 0)
			r.Plan(two, nil)
			steps(r, two, "c", 7, 9, all...)
		},
		want: Report{Steps: 9, Samples: 72, Told: 6, ToldByOne: 2},
	},
	"the word of others is as the records of those who computed": {
		a:    func(r *Recorder) { r.Plan(one, nil); steps(r, one, "a", 1, 6, all...) },
		c:    func(r *Recorder) { r.Plan(one, nil); told(r, one, "a", 1, 6, 0); told(r, one, "b", 1, 6, 0) },
		want: Report{Steps: 6, Samples: 48},
	},
	"a member lied to a node": {
		a:    func(r *Recorder) { r.Plan(one, nil); steps(r, one, "a", 1, 2, all...) },
		c:    func(r *Recorder) { r.Plan(one, nil); told(r, one, "b", 2, 2, 0.5) },
		want: Report{Steps: 2, Samples: 16, Differences: []Difference{{2, 1, "a", "3.5", 1, "c, told by b", "4"}}}, problem: "step 2",
	},
	"two members told a node different losses": {
		c:    func(r *Recorder) { told(r, one, "a", 1, 1, 0); told(r, one, "b", 1, 1, 0.5) },
		want: Report{Steps: 1, Samples: 8, Told: 1, Differences: []Difference{{1, 1, "c, told by a", "4", 1, "c, told by b", "4.5"}}}, problem: "step 1",
	},
	"two members told a node different plans": {
		c: func(r *Recorder) {
			told(r, one, "a", 1, 1, 0)
			told(r, planOf(1, 0, "b", "a"), "b", 1, 1, 0)
		},
		want: Report{Steps: 1, Samples: 8, Told: 1}, problem: "c, told by b has another plan of generation 1",
	},
	"a member told of a plan without it": {
		c:    func(r *Recorder) { told(r, one, "d", 1, 1, 0) },
		want: Report{Steps: 1, Samples: 8, Told: 1}, problem: "c: d told of step 1 of generation 1, which it cannot have taken",
	},
	"the plan is unknown": {
		a: func(r *Recorder) { steps(r, one, "a", 1, 1, all...) }, problem: "the plan of generation 1 is in no ledger",
	},
}

func TestAudit(t *testing.T) {
	for name, test := range audits {
		t.Run(name, func(t *testing.T) {
			var nodes []Node
			for i, write := range []func(*Recorder){test.a, test.b, test.c} {
				if write != nil {
					nodes = append(nodes, records(t, plan.PeerID("abc"[i:i+1]), write))
				}
			}
			got := Audit(size, nodes)
			if got.Steps != test.want.Steps || got.Samples != test.want.Samples || got.Recorded != test.want.Recorded || got.Lost != test.want.Lost || got.Doubled != test.want.Doubled ||
				got.Told != test.want.Told || got.ToldByOne != test.want.ToldByOne {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
			for i := range got.Redone {
				got.Redone[i].Why = ""
			}
			if len(got.Redone) != len(test.want.Redone) || len(got.Redone) > 0 && got.Redone[0] != test.want.Redone[0] {
				t.Errorf("redone %+v, want %+v", got.Redone, test.want.Redone)
			}
			if len(got.Differences) != len(test.want.Differences) || len(got.Differences) > 0 && got.Differences[0] != test.want.Differences[0] {
				t.Errorf("differences %+v, want %+v", got.Differences, test.want.Differences)
			}
			err := got.Err()
			if (err != nil) != (test.problem != "") || err != nil && (!errors.Is(err, ErrWrong) || !strings.Contains(err.Error(), test.problem)) {
				t.Errorf("error %v, want %q", err, test.problem)
			}
		})
	}
}

// TestDamage flips every bit of a ledger in turn: it is told, and the records around it are there.
func TestDamage(t *testing.T) {
	p := planOf(1, 0, "a", "b")
	n := records(t, "a", func(r *Recorder) { r.Plan(p, nil); steps(r, p, "a", 1, 3, 0, 1, 2, 3) })
	whole, err := os.ReadFile(filepath.Join(n.Dir, FileName))
	if err != nil {
		t.Fatal(err)
	}
	for i := range len(whole) * 8 {
		b := bytes.Clone(whole)
		b[i/8] ^= 1 << (i % 8)
		c := Decode(b)
		intact := len(c.Plans)+len(c.Entries) == 4 && c.Head == n.Head && c.DamagedBytes == 0
		if intact && i/8 < len(whole)-entryBytes-headerBytes { // a last record may look cut
			t.Errorf("bit %d: %+v", i, c)
		}
	}
	cut := Decode(whole[:len(whole)-5])
	if cut.DamagedBytes != 0 || len(cut.Entries) != 2 {
		t.Errorf("cut in its last record: %d entries, %d bytes damaged", len(cut.Entries), cut.DamagedBytes)
	}
	if _, err := Read(t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no ledger: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	p := planOf(1, 0, "a", "b")
	b := appendJSON(nil, kindHead, Head{Run: "run", Peer: "a"})
	b = appendJSON(b, kindPlan, Planned{Plan: p})
	f.Add(b)
	f.Add(append(b[:len(b)-3:len(b)-3], b...))
	f.Add(appendEntry(b, 7, CommitOf(1, 2, 3)))
	teller := marshal(Teller{Generation: 1, By: "b"})
	f.Add(appendEntry(appendRecord(b, kindTeller, teller), keyOf(teller), CommitOf(1, 2, 3)))
	lineage := appendJSON(appendEntry(b, 7, CommitOf(1, 2, 3)), kindLineage, Lineage{plan.Partings{{Recovery: "r"}}})
	f.Add(appendJSON(lineage, kindLineage, Lineage{}))
	local := apart(1, 0, plan.Stream{})
	f.Add(appendJSON(appendJSON(nil, kindPlan, Planned{Plan: local}), kindOuter, round(local, 0, plan.Stream{}, 4, 3)))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := Decode(b)
		if c.DamagedBytes > int64(len(b)) {
			t.Fatalf("%d bytes damaged of %d", c.DamagedBytes, len(b))
		}
		_ = Audit(size, []Node{{Dir: "a", Contents: c}}).Err() // does not panic
	})
}
