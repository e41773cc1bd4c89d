package pipeline

import (
	"bytes"
	"math"
	"testing"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// recommit changes a commit on its way.
func recommit(t *testing.T, change func(*wire.Commit)) func([]byte) []byte {
	return func(b []byte) []byte {
		c, err := wire.DecodeCommit(b)
		if err != nil {
			t.Error(err)
		}
		change(&c)
		return wire.AppendCommit(nil, c)
	}
}

// TestCommitWithGradScaleNaN: a commit that does not follow from the run's rules and from what its
// receiver has reported is refused, before it touches a parameter.
func TestCommitWithGradScaleNaN(t *testing.T) {
	run := testRun()
	p := cut(run, "1f1b", []int{0, 2})
	nan := math.NaN()
	for name, c := range map[string]struct {
		change func(*wire.Commit)
		words  string
	}{
		"scale NaN":        {func(c *wire.Commit) { c.GradScale = nan }, "scales a gradient"},
		"scale 2":          {func(c *wire.Commit) { c.GradScale = 2 }, "scales a gradient"},
		"scale -1":         {func(c *wire.Commit) { c.GradScale = -c.GradScale }, "scales a gradient"},
		"no update":        {func(c *wire.Commit) { c.GradScale = 0 }, "scales a gradient"},
		"one bit":          {func(c *wire.Commit) { c.GradScale = math.Nextafter(c.GradScale, 0) }, "scales a gradient"},
		"skipped for NaN":  {func(c *wire.Commit) { c.GradScale, c.Norm = 0, nan }, "the gradient's norm is NaN"},
		"infinite norm":    {func(c *wire.Commit) { c.GradScale, c.Norm = 0, math.Inf(1) }, "the gradient's norm is +Inf"},
		"a norm of 1e150":  {func(c *wire.Commit) { c.Norm = 1e150; c.GradScale = gradScale(c.Norm, run.Train) }, "the gradient's norm is 1e+150"},
		"loss of 1e7":      {func(c *wire.Commit) { c.Loss = 1e7 }, "the loss is 1e+07"},
		"too small a norm": {func(c *wire.Commit) { c.Norm, c.GradScale = 1e-9, 1 }, "the parts here alone have"},
		"loss NaN":         {func(c *wire.Commit) { c.Loss = nan }, "the loss is NaN"},
		"loss below 0":     {func(c *wire.Commit) { c.Loss = -1 }, "the loss is -1"},
		"held out":         {func(c *wire.Commit) { c.HeldOut = &nan }, "held-out loss"},
		"another step":     {func(c *wire.Commit) { c.Step++ }, "it is of step 3"},
		"a save":           {func(c *wire.Commit) { c.Save = !c.Save }, "save is"},
		"schedule":         {func(c *wire.Commit) { c.Next = "zb-v" }, "cannot be carried out"},
	} {
		t.Run(name, func(t *testing.T) {
			keeper := &memoryKeeper{}
			change := inStep(wire.KindCommit, 2, recommit(t, c.change))
			attack{run: run, plan: p, by: "peer-0-1", keeper: keeper, change: change}.wantBlame(t, plan.BadCommit, 2, c.words)
			if len(keeper.layers[2]) > 0 && len(keeper.layers[2]) == run.Model.Layers() {
				t.Error("a checkpoint was made with what the commit did")
			}
		})
	}
	for name, change := range map[string]func([]byte) []byte{
		"short":     func(b []byte) []byte { return b[:7] },
		"gibberish": func(b []byte) []byte { return bytes.Repeat([]byte{0xff}, len(b)) },
	} {
		t.Run(name, func(t *testing.T) {
			attack{run: run, plan: p, by: "peer-0-1", change: inStep(wire.KindCommit, 2, change)}.wantBlame(t, plan.BadCommit, 2, "wire")
		})
	}
	t.Run("the last one", func(t *testing.T) {
		last := run.Train.Steps + 1
		change := inStep(wire.KindCommit, last, recommit(t, func(c *wire.Commit) { c.HeldOut = &nan }))
		attack{run: run, plan: p, by: "peer-0-1", change: change}.wantBlame(t, plan.BadCommit, last, "held-out loss")
	})
}

// TestCommitIsConsistentWithOwnLosses: the coordinator has one replica's losses, and cannot say less than
// another one has lost alone.
func TestCommitIsConsistentWithOwnLosses(t *testing.T) {
	run := testRun()
	p := cut(run, "1f1b", []int{0}, []int{0})
	change := inStep(wire.KindCommit, 2, recommit(t, func(c *wire.Commit) { c.Loss /= 4 }))
	attack{run: run, plan: p, by: "peer-0-0", change: change}.wantBlame(t, plan.BadCommit, 2, "those here alone")
}

// TestReportsThatCannotBe: the coordinator takes from each worker exactly the losses and square sums that
// the plan has it report.
func TestReportsThatCannotBe(t *testing.T) {
	run := testRun()
	for name, c := range map[string]struct {
		change func(*wire.Report)
		words  string
	}{
		"a loss NaN":           {func(r *wire.Report) { r.Losses[1].Loss = math.NaN() }, "loss of micro-batch 3 is NaN"},
		"a loss below 0":       {func(r *wire.Report) { r.Losses[0].Loss = -3 }, "loss of micro-batch 2 is -3"},
		"a loss of 1e7":        {func(r *wire.Report) { r.Losses[0].Loss = 1e7 }, "loss of micro-batch 2 is 1e+07"},
		"square sums 1.7e308":  {func(r *wire.Report) { r.SumSquares[0].Sum, r.SumSquares[1].Sum = 1.7e308, 1.7e308 }, "layer 0's gradient is 1.7e+308"},
		"a square sum 1e300":   {func(r *wire.Report) { r.SumSquares[13].Sum = 1e300 }, "layer 2's gradient is 1e+300"},
		"a square sum NaN":     {func(r *wire.Report) { r.SumSquares[13].Sum = math.NaN() }, "layer 2's gradient is NaN"},
		"a square sum below 0": {func(r *wire.Report) { r.SumSquares[0].Sum = -1 }, "layer 0's gradient is -1"},
		"a loss twice":         {func(r *wire.Report) { r.Losses[1].Micro = r.Losses[0].Micro }, "each once"},
		"another's loss":       {func(r *wire.Report) { r.Losses[0].Micro = 0 }, "each once"},
		"a part twice":         {func(r *wire.Report) { r.SumSquares[1] = r.SumSquares[0] }, "each once"},
		"another's part":       {func(r *wire.Report) { r.SumSquares[0].Part-- }, "each once"},
		"a part less":          {func(r *wire.Report) { r.SumSquares = r.SumSquares[1:] }, "each once"},
		"losses of nobody":     {func(r *wire.Report) { r.Losses = append(r.Losses, wire.MicroLoss{Micro: 1 << 30}) }, "each once"},
	} {
		t.Run(name, func(t *testing.T) {
			p := sharded(cut(run, "1f1b", []int{0}, []int{0}))
			change := inStep(wire.KindReport, 2, func(b []byte) []byte {
				r, err := wire.DecodeReport(b)
				if err != nil {
					t.Error(err)
				}
				c.change(&r)
				return wire.AppendReport(nil, r)
			})
			attack{run: run, plan: p, by: "peer-1-0", change: change}.wantBlame(t, plan.BadReport, 2, c.words)
		})
	}
	t.Run("short", func(t *testing.T) {
		change := inStep(wire.KindReport, 2, func(b []byte) []byte { return b[:9] })
		attack{run: run, plan: cut(run, "1f1b", []int{0, 2}), by: "peer-0-0", change: change}.wantBlame(t, plan.BadReport, 2, "the report of replica 0 stage 0")
	})
}

// TestEveryPartIsOwedOnce: however a plan is cut and its state is in parts, its workers owe each
// micro-batch's loss and each part of the gradient once.
func TestEveryPartIsOwedOnce(t *testing.T) {
	run := testRun()
	pairs := cut(run, "1f1b", []int{0, 2}, []int{0, 1, 4})
	for _, plan := range []plan.Plan{
		cut(run, "1f1b", []int{0}), cut(run, "1f1b", []int{0, 1, 3}), pairs, sharded(pairs), sharded(pairs, plan.LayerRange{First: 1, End: 3}),
	} {
		p := program{spec: run, plan: plan}
		losses, parts := map[int]int{}, map[int32]int{}
		for _, w := range plan.Workers() {
			micros, owed := p.owes(w)
			for _, m := range micros {
				losses[int(m)]++
			}
			for _, n := range owed {
				parts[n]++
			}
		}
		for i := range run.Train.Micros {
			if losses[i] != 1 {
				t.Errorf("%d replicas: the loss of micro-batch %d is owed %d times", len(plan.Replicas), i, losses[i])
			}
		}
		for i := range run.Model.Layers() * p.pieces() {
			if parts[int32(i)] != 1 {
				t.Errorf("%d replicas: part %d is owed %d times", len(plan.Replicas), i, parts[int32(i)])
			}
		}
		if len(losses) != run.Train.Micros || len(parts) != run.Model.Layers()*p.pieces() {
			t.Errorf("%d replicas: %d losses and %d parts are owed", len(plan.Replicas), len(losses), len(parts))
		}
	}
}
