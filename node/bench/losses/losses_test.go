package losses

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pnode/node/api"
	"pnode/node/config"
	"pnode/node/local"
	"pnode/planner/plan"
)

// fake stands in for the nodes of runs: it tells losses that follow from codec, seed and step, and keeps in the run's folder how far it is.
type fake struct {
	started, resumed []string
	stopAt           plan.Step          // the step at which stop is called
	stop             context.CancelFunc // nil for never
	mute             bool               // the next run ends without its last point
}

// loss is a run's held-out loss.
func loss(c config.Config, step plan.Step) float64 {
	x := 5/float64(step) + float64(c.Seed)
	if c.Codec == "int8" {
		x += 0.001 * float64(c.Seed)
	}
	return x
}

func (f *fake) start(ctx context.Context, c config.Config, out local.Output) error {
	name := filepath.Base(c.Dir)
	f.started = append(f.started, name)
	if c.Resume {
		f.resumed = append(f.resumed, name)
	}
	node := config.NodeDir(c.Dir, 0)
	if err := os.MkdirAll(node, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(node, config.MembershipFile), nil, 0o600); err != nil {
		return err
	}
	for step := plan.Step(1); step <= plan.Step(c.Steps); step++ {
		e := api.Event{Kind: api.KindStep, Step: step}
		if step%plan.Step(c.HeldOutEvery) == 0 && !(f.mute && step == plan.Step(c.Steps)) {
			held := loss(c, step)
			e.HeldOut = &held
			if c.Codec != "f32" {
				rounded := held + 7
				e.HeldOut, e.HeldOutF32 = &rounded, &held
			}
		}
		out.Event(e)
		if f.stop != nil && step == f.stopAt {
			f.stop()
			return nil // stopped with a checkpoint
		}
	}
	f.mute = false
	return nil
}

// points is how many held-out losses a run has.
const points = 10

func options(t *testing.T) Options {
	o := Options{Folder: t.TempDir(), Seeds: 2, Progress: func(string) {}}
	for _, codec := range []string{"f32", "int8"} {
		c := config.Default()
		c.Codec, c.Steps, c.HeldOutEvery = codec, 20, 2
		o.Arms = append(o.Arms, Arm{codec, c, "--codec " + codec})
	}
	return o
}

// reportOf returns the report on runs.
func reportOf(o Options, runs []Run) Report { return Report{[]string{"f32", "int8"}, o.steps(), runs} }

// TestGoesOnWhereItStopped stops in the third run and wants the next start to resume that one and to leave the first two alone.
func TestGoesOnWhereItStopped(t *testing.T) {
	o := options(t)
	ctx, cancel := context.WithCancel(t.Context())
	f := &fake{}
	if _, err := train(ctx, o, func(ctx context.Context, c config.Config, out local.Output) error {
		if len(f.started) == 2 {
			f.stop, f.stopAt = cancel, 13
		}
		return f.start(ctx, c, out)
	}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if got := strings.Join(f.started, " "); got != "f32-seed1 int8-seed1 f32-seed2" {
		t.Fatalf("started %s", got)
	}
	again := &fake{}
	runs, err := train(t.Context(), o, again.start)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(again.started, " ") + "; " + strings.Join(again.resumed, " "); got != "f32-seed2 int8-seed2; f32-seed2" {
		t.Errorf("started and resumed %s", got)
	}
	for _, run := range runs {
		if len(run.Points) != points {
			t.Errorf("%s has %d points", run.name(), len(run.Points))
		}
		if _, err := os.Stat(filepath.Join(o.Folder, run.name())); !os.IsNotExist(err) {
			t.Errorf("the folder of %s is still there: %v", run.name(), err)
		}
	}
	r := reportOf(o, runs)
	e := r.Effect("int8")
	if d := e.Last; e.Seeds != 2 || math.Abs(d.Mean-0.0015) > 1e-9 || math.Abs(d.Least-0.001) > 1e-9 || math.Abs(d.Most-0.002) > 1e-9 || math.Abs(d.Relative-(0.001/1.25+0.002/2.25)/2) > 1e-9 || e.Reaches != 0 {
		t.Errorf("%+v", e)
	}
	for _, want := range []string{"after 20 steps", "+0.00150", "2.25200", "never"} {
		if !strings.Contains(r.Text(), want) {
			t.Errorf("%q is not in\n%s", want, r.Text())
		}
	}
	var drawn strings.Builder
	if err := r.SVG(&drawn); err != nil || strings.Count(drawn.String(), "<title>") != 4 || xml.Unmarshal([]byte(drawn.String()), new(any)) != nil {
		t.Errorf("%v:\n%s", err, drawn.String())
	}
}

// TestUnfinishedRunsAreShownAsSuch wants no effect of runs that have not both ended.
func TestUnfinishedRunsAreShownAsSuch(t *testing.T) {
	o := options(t)
	ctx, cancel := context.WithCancel(t.Context())
	f := &fake{stop: cancel, stopAt: 9}
	runs, err := train(ctx, o, f.start)
	if !errors.Is(err, context.Canceled) || len(runs) != 4 {
		t.Fatal(err, runs)
	}
	r := reportOf(o, runs)
	if e := r.Effect("int8"); e.Seeds != 0 {
		t.Errorf("%+v", e)
	}
	if text := r.Text(); !strings.Contains(text, "(step 8)") {
		t.Error(text)
	}
}

// TestLostLastPoint has a run end without its last held-out loss: it is trained once more, and not for ever.
func TestLostLastPoint(t *testing.T) {
	o := options(t)
	o.Arms, o.Seeds = o.Arms[:1], 1
	f := &fake{mute: true}
	if _, err := train(t.Context(), o, f.start); err != nil || len(f.started) != 2 || len(f.resumed) != 0 {
		t.Errorf("%v, started %v, resumed %v", err, f.started, f.resumed)
	}
	o = options(t)
	never := func(_ context.Context, c config.Config, out local.Output) error {
		f := fake{mute: true}
		return f.start(t.Context(), c, out)
	}
	if _, err := train(t.Context(), o, never); err == nil || !strings.Contains(err.Error(), "f32-seed1 has ended without a held-out loss after step 20") {
		t.Error(err)
	}
}

// TestFolderOfOtherSettings is refused.
func TestFolderOfOtherSettings(t *testing.T) {
	o := options(t)
	f := &fake{}
	if _, err := train(t.Context(), o, f.start); err != nil {
		t.Fatal(err)
	}
	o.Seeds = 3 // more of the same
	if _, err := train(t.Context(), o, f.start); err != nil {
		t.Fatal(err)
	}
	more := o.Arms[1]
	more.Name, more.Says = "bf16", "--codec bf16"
	o.Arms = append(o.Arms, more)
	if _, err := train(t.Context(), o, f.start); err != nil {
		t.Fatal(err)
	}
	o.Arms[1].Says = "--codec int8 --steps 30"
	if _, err := train(t.Context(), o, f.start); !errors.Is(err, ErrOtherSettings) {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(o.Folder, settingsFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := train(t.Context(), o, f.start); err == nil || errors.Is(err, ErrOtherSettings) {
		t.Error(err)
	}
}

// TestSooner: an arm that comes to the first one's least loss earlier needs a part of its steps.
func TestSooner(t *testing.T) {
	run := func(arm string, losses ...float64) Run {
		r := Run{Arm: arm, Seed: 1}
		for i, loss := range losses {
			r.Points = append(r.Points, Point{Step: plan.Step(10 * (i + 1)), HeldOut: loss, Exact: loss})
		}
		return r
	}
	r := Report{[]string{"adamw", "muon", "sgd"}, 40, []Run{run("adamw", 5, 4, 2, 2.5), run("muon", 4, 3, 1, 1), run("sgd", 5, 5, 4, 3)}}
	if e := r.Effect("muon"); math.Abs(e.Reaches-25./30) > 1e-9 || e.Best.Mean != -1 || e.Best.Relative != -0.5 || e.Last.Mean != -1.5 {
		t.Errorf("%+v", e)
	}
	if e := r.Effect("sgd"); e.Reaches != 0 {
		t.Errorf("%+v", e)
	}
}

// TestTornLine: the last line of a process that was killed is cut off.
func TestTornLine(t *testing.T) {
	o := options(t)
	run := Run{Arm: "f32", Seed: 1}
	if err := os.WriteFile(o.pointsFile(run), []byte(`{"step":4,"held_out":3,"exact":3}`+"\n"+`{"step":2,"held_out":4,"exact":4}`+"\n"+`{"step":4,"held_out":3,"exact":3}`+"\n"+`{"step":6,"he`), 0o600); err != nil {
		t.Fatal(err)
	}
	points, err := o.read(run)
	if err != nil || len(points) != 2 || points[0].Step != 2 || points[1].Step != 4 {
		t.Error(points, err)
	}
}

// TestOlderLines: folders of older versions have another name for the loss.
func TestOlderLines(t *testing.T) {
	o, run := options(t), Run{Arm: "f32", Seed: 1}
	if err := os.WriteFile(o.pointsFile(run), []byte(`{"step":2,"heldout":4,"exact":3}`+"\n"+`{"step":4,"held_out":2,"exact":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	points, err := o.read(run)
	if err != nil || !slices.Equal(points, []Point{{2, 4, 3}, {4, 2, 1}}) {
		t.Error(points, err)
	}
	if text, err := json.Marshal(points[0]); err != nil || string(text) != `{"step":2,"held_out":4,"exact":3}` {
		t.Errorf("%s, %v", text, err)
	}
}
