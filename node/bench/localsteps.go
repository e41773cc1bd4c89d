package bench

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"pnode/node/config"
	"pnode/pipeline/model"
	"pnode/planner/plan"
)

//go:embed torchlocal.py
var torchLocalOnly string

var torchLocalScript = torchPeerScript + torchLocalOnly

// LocalStepsOptions say which runs of replicas with local steps to lay beside PyTorch's.
type LocalStepsOptions struct {
	Python   string
	Binary   string // this program
	Progress func(string)
	Data     []string // as of pnode train
	Codecs   []string // of outer steps, default all
	Replicas int
	Steps    int
	Every    int // inner steps of a round
	Delay    int // of the next one that are made while messages travel
	LR       float64
	Seed     uint64
}

func (o *LocalStepsOptions) fill() error {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	o.Codecs = orElse(o.Codecs, plan.OuterCodecs()...)
	if !(o.LR > 0 && o.LR <= 1) {
		return fmt.Errorf("--lr is %v: take more than 0 and at most 1", o.LR)
	}
	return cmp.Or(checkNames("codec", plan.OuterCodecs(), o.Codecs...), checkRange("replicas", 2, 16, o.Replicas),
		checkRange("steps", 2, 100_000, o.Steps), checkRange("every", 2, o.Steps, o.Every), checkRange("delay", 0, o.Every-1, o.Delay))
}

// config returns the settings of a run: small batches, for two cores, and float32 alone.
func (o LocalStepsOptions) config(codec, dir string) config.Config {
	c := config.Default()
	c.Dir, c.Data, c.Steps, c.Seed = dir, o.Data, o.Steps, o.Seed
	c.Context, c.Micros, c.MicroBatch, c.SumGroups = 64, 2*o.Replicas, 2, config.Count(o.Replicas)
	c.LR, c.MinLR, c.WarmupSteps = o.LR, o.LR/10, min(c.WarmupSteps, max(1, o.Steps/10))
	c.Sync = fmt.Sprintf("local:h=%d,codec=%s,delay=%d", o.Every, codec, o.Delay)
	c.Local, c.MinNodes, c.Replicas, c.Stages = o.Replicas, o.Replicas, config.Count(o.Replicas), 1
	c.Storage, c.Devices = model.StorageF32.String(), "cpu"
	c.HeldOutEvery, c.Keep, c.SampleBytes = o.Steps, 1, 0
	return c
}

// LocalStepsReport lays losses of replicas with local steps beside PyTorch's.
type LocalStepsReport struct {
	Peer     string            `json:"peer"`
	Preset   string            `json:"preset"`
	Replicas int               `json:"replicas"`
	Steps    int               `json:"steps"`
	Every    int               `json:"every"`
	Delay    int               `json:"delay"`
	LR       float64           `json:"lr"`
	Seed     uint64            `json:"seed"`
	Codecs   []LocalStepsCodec `json:"codecs"`
}

// LocalStepsCodec is a run with one codec. Differences are between losses of the same inner step of the same replica, relative to the loss: of this
// program and PyTorch in float32, of this program and PyTorch in float64, and of PyTorch in both.
type LocalStepsCodec struct {
	Codec string `json:"codec"`
	// InnerSteps counts those of all replicas, OuterSteps those of all together.
	InnerSteps int `json:"inner_steps"`
	OuterSteps int `json:"outer_steps"`
	// First and Last are the mean losses of this program's replicas in their first and last inner steps.
	First     float64    `json:"first"`
	Last      float64    `json:"last"`
	Torch     Difference `json:"torch"`
	Double    Difference `json:"torch_f64"`
	Precision Difference `json:"torch_f32_and_f64"`
}

// Difference is the largest relative difference of two lists of losses, in which step of which replica it was, and the mean.
type Difference struct {
	Most    float64      `json:"most"`
	Mean    float64      `json:"mean"`
	Step    plan.Step    `json:"step"`
	Replica plan.Replica `json:"replica"`
	count   int
}

// add takes in the losses of a step on two sides.
func (d *Difference) add(step plan.Step, replica plan.Replica, one, other float64) {
	apart := math.Abs(one-other) / max(math.Abs(other), 1e-12)
	if !(apart <= math.MaxFloat64) { // a loss that is no number is as far off as can be
		apart = math.MaxFloat64
	}
	if d.count++; apart > d.Most || d.count == 1 {
		d.Most, d.Step, d.Replica = apart, step, replica
	}
	d.Mean += (apart - d.Mean) / float64(d.count)
}

// LocalSteps trains a small model with local steps by real nodes, has PyTorch train the same by the same samples, and compares the loss of each
// inner step. The error says what is missing where there is no PyTorch.
func LocalSteps(ctx context.Context, o LocalStepsOptions) (r LocalStepsReport, err error) {
	if err := o.fill(); err != nil {
		return r, fmt.Errorf("bench local-steps: %w: %w", ErrOptions, err)
	}
	r = LocalStepsReport{Preset: config.Default().Preset, Replicas: o.Replicas, Steps: o.Steps, Every: o.Every, Delay: o.Delay, LR: o.LR, Seed: o.Seed}
	for _, codec := range o.Codecs {
		c, err := r.compare(ctx, o, codec)
		if err != nil {
			return r, fmt.Errorf("bench local-steps: %s: %w", codec, err)
		}
		r.Codecs = append(r.Codecs, c)
	}
	return r, nil
}

// HasRows reports whether something was compared.
func (r LocalStepsReport) HasRows() bool { return len(r.Codecs) > 0 }

// compare trains with one codec, here and in PyTorch.
func (r *LocalStepsReport) compare(ctx context.Context, o LocalStepsOptions, codec string) (c LocalStepsCodec, err error) {
	torch, err := r.startTorch(ctx, o.Python)
	defer func() {
		for _, p := range torch {
			err = errors.Join(err, p.close())
		}
	}()
	if err != nil {
		return c, err
	}
	folder, err := os.MkdirTemp("", "pnode-local-steps-")
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	dir := filepath.Join(folder, "run")
	run, err := trainApart(ctx, o.config(codec, dir), o.Binary, func(text string) { o.Progress(codec + ", " + text) })
	if err != nil {
		return c, err
	}
	described, err := run.describe(ctx, folder, config.NodeDir(dir, 0))
	if err != nil {
		return c, err
	}
	for _, p := range torch {
		if _, err := p.ask(map[string]torchRun{"run": described}); err != nil {
			return c, err
		}
	}
	c.Codec = codec
	for _, round := range run.rounds {
		o.Progress(fmt.Sprintf("%s, PyTorch, step %d of %d", codec, round.To, o.Steps))
		if err := c.round(run, round, torch); err != nil {
			return c, err
		}
	}
	return c, nil
}

// startTorch starts PyTorch in float32 and in float64.
func (r *LocalStepsReport) startTorch(ctx context.Context, python string) (torch []*peer, err error) {
	for _, dtype := range []string{"f32", "f64"} {
		p, err := startPeer(ctx, nil, map[string]any{"dtype": dtype, "threads": 1}, python, "-c", torchLocalScript)
		if err != nil {
			return torch, fmt.Errorf("%w; it needs a Python with PyTorch (PyPI: pip install torch), see --python", err)
		}
		torch, r.Peer = append(torch, p), p.hello.Name
	}
	return torch, nil
}

// round has both precisions of PyTorch make a round that this program has made, and compares the losses.
func (c *LocalStepsCodec) round(run localRun, round localRound, torch []*peer) error {
	request := map[string]torchRound{"round": run.request(round)}
	single, err := torch[0].ask(request)
	if err != nil {
		return err
	}
	double, err := torch[1].ask(request)
	if err != nil {
		return err
	}
	i, mean := 0, 0.0
	c.OuterSteps++
	for replica, losses := range round.losses {
		if len(single.Losses)-i < len(losses) || len(double.Losses)-i < len(losses) {
			return fmt.Errorf("%s: %d and %d losses for the round after step %d, want one for each inner step", torch[0].hello.Name, len(single.Losses), len(double.Losses), round.From)
		}
		for k, loss := range losses {
			step, at := round.From+1+plan.Step(k), plan.Replica(replica)
			c.Torch.add(step, at, loss, single.Losses[i])
			c.Double.add(step, at, loss, double.Losses[i])
			c.Precision.add(step, at, single.Losses[i], double.Losses[i])
			if step == 1 {
				c.First += loss / float64(len(round.losses))
			}
			i++
		}
		c.InnerSteps += len(losses)
		if len(losses) > 0 {
			mean += losses[len(losses)-1] / float64(len(round.losses))
		}
	}
	c.Last = mean
	return nil
}

// Text returns the report as a table for people.
func (r LocalStepsReport) Text() string {
	var w strings.Builder
	fmt.Fprintf(&w, "Losses of replicas with local steps beside %s's: %s, %d replicas, %d steps, an outer one after each %d\n"+
		"and %d more, learning rate %v, seed %d. Both begin with the same parameters and read the same samples. Differences are those of the losses\n"+
		"of the same inner step of the same replica, relative to the loss.\n\n", r.Peer, r.Preset, r.Replicas, r.Steps, r.Every, r.Delay, r.LR, r.Seed)
	t := tabwriter.NewWriter(&w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "codec\tinner steps\touter\tloss, first\tlast\tPyTorch f32, most\tat step\tmean\tf64, most\tmean\tf32 and f64, most\tmean\t")
	for _, c := range r.Codecs {
		fmt.Fprintf(t, "%s\t%d\t%d\t%.4f\t%.4f\t%.1e\t%d\t%.1e\t%.1e\t%.1e\t%.1e\t%.1e\t\n", c.Codec, c.InnerSteps, c.OuterSteps, c.First, c.Last,
			c.Torch.Most, c.Torch.Step, c.Torch.Mean, c.Double.Most, c.Double.Mean, c.Precision.Most, c.Precision.Mean)
	}
	_ = t.Flush() // a Builder takes all
	return w.String()
}
