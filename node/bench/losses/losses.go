package losses

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"pnode/node/api"
	"pnode/node/config"
	"pnode/node/local"
	"pnode/planner/plan"
)

const settingsFile = "settings.json"

// ErrOtherSettings is wrapped by the error about a folder that has an arm's runs with other settings.
var ErrOtherSettings = errors.New("losses: the folder has runs with other settings")

// Arm is a choice of settings.
type Arm struct {
	Name string
	// Config has the settings; folder and seed are each run's own.
	Config config.Config
	// Says tells the settings: runs that were asked for in other words are not of this arm.
	Says string
}

// Options say what to train.
type Options struct {
	// Folder gets everything; it may have runs of an earlier start.
	Folder string
	// Arms and Seeds: each arm is trained with the seeds 1 to Seeds. All arms have the same number of steps.
	Arms  []Arm
	Seeds int
	// Binary is this program.
	Binary string
	// Progress receives what is trained now.
	Progress func(string)
}

func (o Options) steps() int { return o.Arms[0].Config.Steps }

// Point is a held-out loss of a run in nats a token, after some steps.
type Point struct {
	Step plan.Step `json:"step"`
	// HeldOut was evaluated over the same boundaries as the training, Exact with all of them in float32.
	HeldOut float64 `json:"held_out"`
	Exact   float64 `json:"exact"`
}

// UnmarshalJSON reads "heldout", too, which older versions wrote.
func (p *Point) UnmarshalJSON(text []byte) error {
	type point Point // without this method
	read := struct {
		*point
		Older float64 `json:"heldout"`
	}{point: (*point)(p)}
	err := json.Unmarshal(text, &read)
	p.HeldOut = cmp.Or(p.HeldOut, read.Older)
	return err
}

// Run is an arm with a seed, and its points in the order of their steps.
type Run struct {
	Arm    string  `json:"arm"`
	Seed   uint64  `json:"seed"`
	Points []Point `json:"points"`
}

// Last returns the point after the last step; not ok where the run has not come to it.
func (r Run) Last(steps int) (Point, bool) {
	if len(r.Points) == 0 || r.Points[len(r.Points)-1].Step < plan.Step(steps) {
		return Point{}, false
	}
	return r.Points[len(r.Points)-1], true
}

func (r Run) name() string { return fmt.Sprintf("%s-seed%d", r.Arm, r.Seed) }

// Best returns the least held-out loss.
func (r Run) Best() (best Point) {
	for _, p := range r.Points {
		if best.Step == 0 || p.Exact < best.Exact {
			best = p
		}
	}
	return best
}

// Train trains what is not trained yet, seed by seed, and returns all runs as far as they are. When ctx ends the run under way is
// stopped with a checkpoint.
func Train(ctx context.Context, o Options) (Report, error) {
	runs, err := train(ctx, o, func(ctx context.Context, c config.Config, out local.Output) error {
		nodes, err := local.New(local.Options{Nodes: c.Local, Dir: c.Dir, Config: c, Binary: o.Binary, Output: out})
		if err != nil {
			return err
		}
		return nodes.Run(ctx)
	})
	r := Report{Steps: o.steps(), Runs: runs}
	for _, a := range o.Arms {
		r.Arms = append(r.Arms, a.Name)
	}
	return r, err
}

// starter starts or resumes a run and returns when it has ended, or when it has been stopped as ctx has ended.
type starter func(ctx context.Context, c config.Config, out local.Output) error

func train(ctx context.Context, o Options, start starter) (runs []Run, err error) {
	if err := o.claim(); err != nil {
		return nil, err
	}
	for seed := range o.Seeds {
		for _, arm := range o.Arms {
			runs = append(runs, Run{Arm: arm.Name, Seed: uint64(seed) + 1})
		}
	}
	for i, run := range runs {
		if err = cmp.Or(o.finish(ctx, o.Arms[i%len(o.Arms)], run, start), ctx.Err()); err != nil {
			break
		}
	}
	for i := range runs {
		var failed error
		runs[i].Points, failed = o.read(runs[i])
		err = errors.Join(err, failed)
	}
	return runs, err
}

// claim makes the folder, or checks that its runs of the same arms are alike, and notes new arms there.
func (o Options) claim() error {
	path, known := filepath.Join(o.Folder, settingsFile), map[string]string{}
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = os.MkdirAll(o.Folder, 0o700)
	case err == nil:
		err = json.Unmarshal(text, &known)
	}
	if err != nil {
		return fmt.Errorf("losses: read %s: %w", path, err)
	}
	for _, a := range o.Arms {
		if says, ok := known[a.Name]; ok && says != a.Says {
			return fmt.Errorf("%w: %s in %s was trained with %q, asked for is %q: name another folder", ErrOtherSettings, a.Name, o.Folder, says, a.Says)
		}
		known[a.Name] = a.Says
	}
	next, err := json.MarshalIndent(known, "", "  ")
	if err != nil || bytes.Equal(next, text) {
		return err
	}
	return os.WriteFile(path, next, 0o600)
}

// finish brings a run to its end. Its folder goes when all its points are written.
func (o Options) finish(ctx context.Context, arm Arm, run Run, start starter) (err error) {
	dir := filepath.Join(o.Folder, run.name())
	for attempt := 0; ; attempt++ {
		if run.Points, err = o.read(run); err != nil {
			return err
		}
		if _, done := run.Last(o.steps()); done {
			return os.RemoveAll(dir)
		}
		if attempt == 2 {
			return fmt.Errorf("losses: %s has ended without a held-out loss after step %d", run.name(), o.steps())
		}
		// A run that ended before its last point was written is trained again: the losses are the same.
		resumes := attempt == 0 && config.Belongs(config.NodeDir(dir, 0))
		if !resumes {
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
		}
		c := arm.Config
		c.Seed, c.Dir, c.Resume = run.Seed, dir, resumes
		if err := o.carryOut(ctx, run, c, start); err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// carryOut starts a run and appends its points to their file. A run that had finished before is no error.
func (o Options) carryOut(ctx context.Context, run Run, c config.Config, start starter) (err error) {
	if err := c.Validate(); err != nil {
		return err
	}
	file, err := os.OpenFile(o.pointsFile(run), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("losses: %w", err)
	}
	if len(run.Points) > 0 { // the last line may be cut off
		if _, err := file.WriteString("\n"); err != nil {
			return errors.Join(fmt.Errorf("losses: %w", err), file.Close())
		}
	}
	out := &recorder{file: file, name: run.name(), steps: o.steps(), progress: o.Progress}
	err = start(ctx, c, out)
	if node := (*local.NodeError)(nil); errors.As(err, &node) && node.Code == local.ExitFinished {
		err = nil
	}
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("losses: %s: %w", run.name(), err)
	}
	return errors.Join(err, out.err, file.Close())
}

func (o Options) pointsFile(run Run) string {
	return filepath.Join(o.Folder, run.name()+".jsonl")
}

// read returns a run's points, each step once. Of a line that was cut off the rest is missing, and the step is told again.
func (o Options) read(run Run) (all []Point, err error) {
	text, err := os.ReadFile(o.pointsFile(run))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("losses: %w", err)
	}
	for line := range bytes.Lines(text) {
		var p Point
		if json.Unmarshal(line, &p) != nil || p.Step == 0 {
			continue
		}
		if i, found := slices.BinarySearchFunc(all, p, func(a, b Point) int { return int(a.Step) - int(b.Step) }); !found {
			all = slices.Insert(all, i, p)
		}
	}
	return all, nil
}

// recorder writes the points of a run as they come.
type recorder struct {
	file     *os.File
	name     string
	steps    int
	progress func(string)
	err      error
}

// Event takes one of the run's events; the supervisor passes one after the other.
func (r *recorder) Event(e api.Event) {
	if e.Kind != api.KindStep {
		return
	}
	r.progress(fmt.Sprintf("%s, step %d of %d", r.name, e.Step, r.steps))
	if e.HeldOut == nil {
		return
	}
	p := Point{Step: e.Step, HeldOut: *e.HeldOut, Exact: *e.HeldOut}
	if e.HeldOutF32 != nil {
		p.Exact = *e.HeldOutF32
	}
	line, err := json.Marshal(p)
	if err == nil {
		_, err = r.file.Write(append(line, '\n'))
	}
	r.err = errors.Join(r.err, err)
}

// Notice is for people who watch a run; here its folder has a log.
func (*recorder) Notice(string) {}
