package bench

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pnode/node/ledger"
	"pnode/pipeline/model"
	"pnode/planner/plan"
)

// apartLedgers returns what two replicas with 2 and 1 of 3 micro-batches wrote, in rounds of 4 of 7 steps. Replica 1 makes 3 steps of the first one.
func apartLedgers() (spec plan.RunSpec, all []ledger.Contents) {
	spec.Model = model.Config{Vocab: 11, Context: 4, Blocks: 1, Heads: 1, Channels: 4}
	spec.Train = plan.TrainSpec{Seed: 5, Steps: 7, Micros: 3, SumGroups: 3, MicroBatch: 2}
	p := plan.Plan{Generation: 1, Local: &plan.Local{Rounds: plan.Rounds{Every: 4, Fragments: 1, Delay: 2}, Codec: "topk"}, Replicas: []plan.Pipeline{{Micros: 2}, {FirstMicro: 2, Micros: 1}}}
	fresh, left := plan.Stream{Fresh: 0}, plan.Stream{Given: []plan.MicroRange{{First: 11, End: 12}}, Fresh: 12}
	outer := []ledger.Outer{
		{Merged: plan.Merged{Generation: 1, To: 4, Parts: []plan.Part{{Steps: 4}, {Steps: 3}}}, End: 4, Before: &fresh},
		{Merged: plan.Merged{Generation: 1, From: 4, To: 7, Parts: []plan.Part{{Steps: 3}, {Steps: 3}}}, End: 7, Before: &left},
	}
	for r := range plan.Replica(2) {
		work := ledger.Work{Generation: 1, Replica: &r}
		c := ledger.Contents{Steps: ledger.Steps{Plans: []ledger.Planned{{Plan: p}}, Outer: outer}}
		for step := plan.Step(1); step <= 7; step++ {
			c.Entries = append(c.Entries, ledger.Entry{Commit: ledger.CommitOf(step, float64(r)+float64(step)/10, 1), Work: &work})
		}
		all = append(all, c)
	}
	return spec, all
}

// TestReadRun: ledgers say which samples each replica read in which step, and the losses of these. What they do not say is an error.
func TestReadRun(t *testing.T) {
	spec, all := apartLedgers()
	r, err := readRun(spec, all)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(r.rounds[0].losses, r.rounds[1].losses), "[[0.1 0.2 0.3 0.4] [1.1 1.2 1.3]] [[0.5 0.6 0.7] [1.5 1.6 1.7]]"; got != want {
		t.Errorf("losses %s, want %s", got, want)
	}
	var numbers [2][]int64
	for i, round := range r.rounds {
		if err := r.each(round, func(step plan.Step, micro plan.Micro) error {
			numbers[i] = append(numbers[i], int64(step-1)*3+int64(micro))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := fmt.Sprint(numbers), "[[0 1 2 3 4 5 6 7 8 9 10] [11 12 13 14 15 16 17 18 19]]"; got != want {
		t.Errorf("micro-batches %s, want %s", got, want)
	}
	if w := r.weights(r.rounds[0]); w[0] != float32(8.0/11) || w[1] != float32(3.0/11) {
		t.Errorf("weights %v", w)
	}
	if q := r.request(r.rounds[1]); q.From != 4 || q.To != 7 || q.Delay != 2 || !slices.Equal(q.Rows, []int{4, 2}) || !slices.Equal(q.Steps, []plan.Step{3, 3}) {
		t.Errorf("request %+v", q)
	}
	for what, change := range map[string]func(*ledger.Contents, *ledger.Contents){
		"2 plans": func(a, _ *ledger.Contents) {
			a.Plans = append(a.Plans, ledger.Planned{Plan: plan.Plan{Generation: 2}})
		},
		"no ledger has the outer step after step 4": func(a, b *ledger.Contents) {
			a.Outer, b.Outer = slices.Clone(a.Outer), slices.Clone(b.Outer)
			a.Outer[1].Before, b.Outer[1].Before = nil, nil
		},
		"no ledger has step 5 of replica 1": func(_, b *ledger.Contents) { b.Entries = slices.Delete(b.Entries, 4, 5) },
		"end at step 4 of 7":                func(a, b *ledger.Contents) { a.Outer, b.Outer = a.Outer[:1], b.Outer[:1] },
	} {
		spec, all := apartLedgers()
		change(&all[0], &all[1])
		if _, err := readRun(spec, all); !errors.Is(err, errOtherRun) || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want %q", err, what)
		}
	}
}

// TestDescribe: the script gets each tensor once, and a file that is as long as these.
func TestDescribe(t *testing.T) {
	spec, all := apartLedgers()
	r, err := readRun(spec, all)
	if err != nil {
		t.Fatal(err)
	}
	d := r.torch(t.TempDir())
	elements := 0
	for _, tensor := range d.Tensors {
		n := 1
		for _, size := range tensor.Shape {
			n *= size
		}
		elements += n
	}
	if int64(elements) != spec.Model.Params() || d.Tensors[0].Name != "wte.weight" || d.Codec != "topk" || d.LROuter != 1 || d.Momentum != 0 {
		t.Errorf("%d elements of %d parameters: %+v", elements, spec.Model.Params(), d)
	}
	if b, err := r.parameters(); err != nil || len(b) != 4*elements {
		t.Errorf("%d bytes of %d parameters: %v", len(b), elements, err)
	}
}

func TestDifference(t *testing.T) {
	var d Difference
	d.add(1, 0, 2, 2)
	d.add(2, 1, 2.2, 2)
	d.add(3, 0, 1.9, 2)
	if math.Abs(d.Most-0.1) > 1e-12 || math.Abs(d.Mean-0.05) > 1e-12 || d.Step != 2 || d.Replica != 1 {
		t.Errorf("%+v", d)
	}
	if d.add(4, 1, math.NaN(), 2); d.Step != 4 || d.Most < 1e300 {
		t.Errorf("a loss that is no number: %+v", d)
	}
}

// TestLocalStepsWithoutPyTorch says what is missing before anything is trained; a peer that lacks losses is refused.
func TestLocalStepsWithoutPyTorch(t *testing.T) {
	usual := LocalStepsOptions{Python: "/nonexistent/python3", Replicas: 2, Steps: 200, Every: 20, LR: 1e-3, Seed: 1}
	_, err := LocalSteps(t.Context(), usual)
	if err == nil || !strings.Contains(err.Error(), "pip install torch") {
		t.Errorf("%v", err)
	}
	for want, change := range map[string]func(*LocalStepsOptions){
		"--codec":    func(o *LocalStepsOptions) { o.Codecs = []string{"int3"} },
		"--steps":    func(o *LocalStepsOptions) { o.Steps = 1 },
		"--every":    func(o *LocalStepsOptions) { o.Every = 300 },
		"--delay":    func(o *LocalStepsOptions) { o.Delay = 20 },
		"--replicas": func(o *LocalStepsOptions) { o.Replicas = 17 },
		"--lr":       func(o *LocalStepsOptions) { o.LR = math.NaN() },
	} {
		o := usual
		change(&o)
		if _, err := LocalSteps(t.Context(), o); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
	p, err := fake(t, "slow")
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	spec, all := apartLedgers()
	r, err := readRun(spec, all)
	if err != nil {
		t.Fatal(err)
	}
	if err := new(LocalStepsCodec).round(r, r.rounds[0], []*peer{p, p}); err == nil || !strings.Contains(err.Error(), "one for each inner step") {
		t.Errorf("%v", err)
	}
}
