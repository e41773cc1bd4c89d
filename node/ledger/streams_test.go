package ledger

import (
	"slices"
	"strings"
	"testing"

	"pnode/planner/plan"
)

// apart is a plan of two replicas with local steps on two nodes, in rounds of four steps.
func apart(g plan.Generation, start plan.Step, left plan.Stream) plan.Plan {
	return plan.Plan{
		Run: "run", Generation: g, Start: start, Schedule: "1f1b", Stream: left, Local: &plan.Local{Rounds: plan.Rounds{Every: 4, Fragments: 1}, Codec: "int8"},
		Replicas: []plan.Pipeline{{Micros: 2, Stages: whole("a")}, {FirstMicro: 2, Micros: 2, Stages: whole("b")}},
	}
}

// round returns the outer step of a round in which replicas made so many steps each, 0 where one does not count.
func round(p plan.Plan, from plan.Step, before plan.Stream, steps ...plan.Step) Outer {
	before = before.Full(from, 4)
	o := Outer{Merged: plan.Merged{Generation: p.Generation, From: from, To: from, Parts: make([]plan.Part, len(steps))}, End: p.Local.RoundEnd(from, 100), Before: &before}
	var taken []plan.MicroRange
	for q, n := range steps {
		if n == 0 {
			continue
		}
		o.Parts[q], o.To = plan.Part{Steps: n, Sum: plan.Hash{1}}, max(o.To, from+n)
		first := p.Replicas[q].Block(o.End - from).First
		taken = append(taken, plan.MicroRange{First: first, End: first + int64(n)*int64(p.Replicas[q].Micros)})
	}
	o.Stream = before.Without(taken).Brief(o.To, 4)
	return o
}

// inner writes steps of a replica by its node.
func inner(r *Recorder, p plan.Plan, replica plan.Replica, first, last plan.Step, micros ...plan.Micro) {
	id := p.Replicas[replica].Stages[0].Worker()
	w := Work{Generation: p.Generation, Worker: id, By: id.Peer, Replica: &replica, Stages: []StageWork{{plan.StageID{Replica: replica}, plan.LayerRange{End: 4}, micros}}}
	for s := first; s <= last; s++ {
		r.Step(w, CommitOf(s, 3+float64(replica)/float64(s), 1))
	}
}

// TestAuditOfLocalSteps: replica 0 is slow in a round and left out of the next one, and a plan without local steps takes what it gave back. The ledgers prove that each sample
// entered once, and find what is forged in one.
func TestAuditOfLocalSteps(t *testing.T) {
	p := apart(1, 0, plan.Stream{})
	one := round(p, 0, plan.Stream{}, 3, 4)
	two := round(p, 4, one.Stream, 0, 4)
	next := planOf(2, 8, "b", "c")
	next.Stream = two.Stream
	if len(one.Stream.Given) != 1 || len(two.Stream.Given) != 2 {
		t.Fatalf("left are %+v and %+v", one.Stream, two.Stream)
	}
	const samples = 2 * (6 + 8 + 8 + 4*3) // two of a micro-batch
	for name, c := range map[string]struct {
		change  func(one, two *Outer, next *plan.Plan, micros *[]plan.Micro) // of what b has
		without string                                                       // nodes
		want    Report
		problem string
	}{
		"all":                       {want: Report{Samples: samples, Recorded: samples}},
		"b alone":                   {without: "ac", want: Report{Samples: samples, Recorded: 2 * (8 + 8)}},
		"c alone, which was away":   {without: "ab", want: Report{Samples: 2 * (8 + 4*3), Lost: 2 * 4 * 4}, problem: "4 steps before step 5 missing"},
		"one that does not count":   {change: func(_, two *Outer, _ *plan.Plan, _ *[]plan.Micro) { two.Parts[0] = plan.Part{Steps: 4} }, without: "ac", problem: "other samples are left"},
		"one that counted does not": {change: func(one, _ *Outer, _ *plan.Plan, _ *[]plan.Micro) { one.Parts[0] = plan.Part{} }, without: "ac", problem: "other samples are left"},
		"fewer steps":               {change: func(one, _ *Outer, _ *plan.Plan, _ *[]plan.Micro) { one.Parts[0].Steps = 2 }, problem: "different outer steps after step 0"},
		"samples twice": {change: func(_, two *Outer, _ *plan.Plan, _ *[]plan.Micro) {
			again := plan.Stream{Given: []plan.MicroRange{{First: 5, End: 8}}, Fresh: 16}
			two.Before = &again
		}, without: "ac", problem: "begins with other samples"},
		"samples kept back":   {change: func(_, _ *Outer, next *plan.Plan, _ *[]plan.Micro) { next.Stream = plan.Stream{} }, without: "ac", problem: "generation 2 begins with other samples"},
		"a micro-batch lacks": {change: func(_, _ *Outer, _ *plan.Plan, micros *[]plan.Micro) { *micros = []plan.Micro{2} }, want: Report{}, problem: "2 samples lost, 0 doubled"},
		"another's":           {change: func(_, _ *Outer, _ *plan.Plan, micros *[]plan.Micro) { *micros = []plan.Micro{1, 2, 3} }, problem: "0 samples lost, 2 doubled"},
	} {
		t.Run(name, func(t *testing.T) {
			var nodes []Node
			for i, peer := range []plan.PeerID{"a", "b", "c"} {
				if strings.Contains(c.without, string(peer)) {
					continue
				}
				one, two, next, micros := one, two, next, []plan.Micro{2, 3}
				one.Parts, two.Parts = slices.Clone(one.Parts), slices.Clone(two.Parts)
				if i == 1 && c.change != nil {
					c.change(&one, &two, &next, &micros)
				}
				nodes = append(nodes, records(t, peer, func(r *Recorder) {
					r.Plan(p, nil)
					switch peer {
					case "a":
						inner(r, p, 0, 1, 3, 0, 1)
						inner(r, p, 0, 5, 6, 0, 1) // which are given back
					case "b":
						inner(r, p, 1, 1, 8, micros...)
					}
					if peer != "c" {
						r.Outer(one)
						r.Outer(one)
					}
					r.Outer(two)
					if r.End() != (Position{1, 8}) || len(r.Since(Position{}, nil).Commits) != 0 {
						t.Errorf("%s has come to %v and tells of %v", peer, r.End(), r.Since(Position{}, nil))
					}
					r.Plan(next, nil)
					if peer != "a" {
						steps(r, next, peer, 9, 11, all...)
					}
				}))
			}
			got := Audit(size, nodes)
			err := got.Err()
			if (err != nil) != (c.problem != "") || err != nil && !slices.ContainsFunc(got.Problems, func(p string) bool { return strings.Contains(p, c.problem) }) {
				t.Errorf("problems %q, want %q", got.Problems, c.problem)
			}
			if want := c.want; want.Samples > 0 && (got.Steps != 11 || got.Samples != want.Samples || got.Lost != want.Lost || got.Doubled != 0 || want.Recorded > 0 && got.Recorded < want.Recorded) {
				t.Errorf("%d steps, %d samples, %d recorded, %d lost, %d doubled; want %+v", got.Steps, got.Samples, got.Recorded, got.Lost, got.Doubled, want)
			}
		})
	}
}
