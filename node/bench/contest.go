package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"pnode/node/bench/losses"
	"pnode/node/bench/nanogpt"
	"pnode/node/config"
	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/plan"
)

// ContestOptions say what is tried on the contest's meter, and what is trained; the zero value tries every micro-batch of a power of two up to 64
// sequences and trains nothing.
type ContestOptions struct {
	// MicroBatches are sequences of a micro-batch; each is a part of those of a step.
	MicroBatches []int
	// Losses names a folder in which a sibling of the contest's model is trained with Codecs and the seeds 1 to Seeds, in so many Stages and for Steps steps of
	// Data; empty trains nothing. The others have usual values where they are zero, and want a folder where they are not.
	Losses               string
	Codecs               []string
	Seeds, Stages, Steps int
	Data                 []string
	Binary               string // this program
	Progress             func(string)
}

func (o *ContestOptions) fill() error {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	o.MicroBatches = orElse(o.MicroBatches, 1, 2, 4, 8, 16, 32, 64)
	for _, n := range o.MicroBatches {
		if n < 1 || nanogpt.Sequences%n != 0 {
			return fmt.Errorf("--micro-batch is %d: take parts of %d, the sequences of a step", n, nanogpt.Sequences)
		}
	}
	if o.Losses == "" && (len(o.Codecs)+len(o.Data) > 0 || o.Seeds != 0 || o.Stages != 0 || o.Steps != 0) {
		return errors.New("--codec, --seeds, --stages, --steps and --data are of the runs whose losses are measured: name a folder for them with --losses")
	}
	o.Codecs, o.Seeds, o.Stages, o.Steps = orElse(o.Codecs, plan.CodecNames()...), cmp.Or(o.Seeds, 3), cmp.Or(o.Stages, nanogpt.Stages), cmp.Or(o.Steps, 1000)
	return cmp.Or(checkNames("codec", plan.CodecNames(), o.Codecs...), checkRange("seeds", 1, 1000, o.Seeds), checkRange("stages", 2, nanogpt.Stages, o.Stages), checkRange("steps", 1, 1_000_000, o.Steps))
}

// ContestReport holds steps by the meter of Protocol NanoGPT.
type ContestReport struct {
	Entries []ContestEntry `json:"entries"`
	Codecs  []ContestCodec `json:"codecs"`
	// Losses are there where they were asked for.
	Losses *losses.Report `json:"losses,omitempty"`
	Stages int            `json:"stages,omitempty"`
}

// ContestEntry is a published run and its step as it is computed here.
type ContestEntry struct {
	nanogpt.Entry
	Step schedule.Nanos `json:"step_nanos"`
}

// Error returns by how much the step is longer than the published one, as a part of that.
func (e ContestEntry) Error() float64 { return float64(e.Step)/float64(e.Published) - 1 }

// ContestCodec has the steps of one of this program's codecs.
type ContestCodec struct {
	Codec string `json:"codec"`
	// First is in the schedule and with the micro-batch of the contest's first entry.
	First nanogpt.Trial `json:"first"`
	// Schedules has the least step of each schedule over the micro-batches, Best the least of these.
	Schedules []nanogpt.Trial `json:"schedules"`
	Best      nanogpt.Trial   `json:"best"`
}

// Contest computes the steps of the contest's published entries and those of this program's codecs and schedules, by the contest's meter.
// Where a folder is named it trains the sibling, too, and returns what it has when ctx ends.
func Contest(ctx context.Context, o ContestOptions) (r ContestReport, err error) {
	if err := o.fill(); err != nil {
		return r, fmt.Errorf("bench protocol-nanogpt: %w: %w", ErrOptions, err)
	}
	for _, e := range nanogpt.Entries() {
		step, err := e.Step()
		if err != nil {
			return r, fmt.Errorf("bench protocol-nanogpt: %w", err)
		}
		r.Entries = append(r.Entries, ContestEntry{e, step})
	}
	for _, name := range plan.CodecNames() {
		o.Progress(name)
		c, err := contestCodec(ctx, name, o.MicroBatches)
		if err != nil {
			return r, fmt.Errorf("bench protocol-nanogpt: %s: %w", name, err)
		}
		r.Codecs = append(r.Codecs, c)
	}
	if o.Losses == "" {
		return r, nil
	}
	trained, err := losses.Train(ctx, losses.Options{Folder: o.Losses, Arms: o.siblings(), Seeds: o.Seeds, Binary: o.Binary, Progress: o.Progress})
	if errors.Is(err, losses.ErrOtherSettings) {
		err = fmt.Errorf("%w: %w", ErrOptions, err)
	}
	if err != nil {
		err = fmt.Errorf("bench protocol-nanogpt: %w", err)
	}
	if len(trained.Runs) > 0 {
		r.Losses, r.Stages = &trained, o.Stages
	}
	return r, err
}

const (
	// sibling is the preset that stands in for the contest's model, siblingMicros are the sequences of its steps.
	sibling       = "small-5m"
	siblingMicros = 8
	// siblingPoints is how many held-out losses a run has, at least.
	siblingPoints = 10
)

// siblings returns what the sibling is trained with: each codec. In float32 on the processor its losses are the same on every machine.
func (o ContestOptions) siblings() (arms []losses.Arm) {
	exact := func(codec string) bool { return codec == plan.CodecF32.String() }
	for _, codec := range append(slices.DeleteFunc(slices.Clone(o.Codecs), func(c string) bool { return !exact(c) }), slices.DeleteFunc(slices.Clone(o.Codecs), exact)...) { // the others are compared with it
		c := config.Default()
		c.Preset, c.Data, c.Steps, c.Codec = sibling, o.Data, o.Steps, codec
		c.Replicas, c.Stages, c.Schedule, c.Storage, c.Devices = 1, config.Count(o.Stages), "1f1b", model.StorageF32.String(), "cpu"
		c.Micros, c.MicroBatch = siblingMicros, 1
		c.HeldOutEvery = max(1, o.Steps/siblingPoints)
		// At a high rate losses jump by more than codecs change them, and the last ones are compared: it has to have come down by then.
		c.LR, c.MinLR, c.WarmupSteps = 2e-3, 2e-4, min(c.WarmupSteps, max(1, o.Steps/10))
		c.Keep, c.SampleBytes, c.Local = 1, 0, o.Stages
		arms = append(arms, losses.Arm{Name: codec, Config: c, Says: fmt.Sprintf("%s, %d stages, %d steps, %q", sibling, o.Stages, o.Steps, o.Data)})
	}
	return arms
}

// siblingText introduces the losses of the sibling.
func (r ContestReport) siblingText() string {
	c, err := model.Preset(sibling)
	if err != nil {
		panic(err) // TestPresets has them all
	}
	return fmt.Sprintf("Held-out losses of %s (%.1f M parameters, %d stages) after %s of %d tokens, in nats a token, evaluated in float32 throughout:\n\n%s\n"+
		"Runs of one seed begin with the same parameters and read the same samples. It is a small model, on little text: what a codec costs\nthe contest's own model it does not say.\n",
		sibling, float64(c.Params())/1e6, r.Stages, plan.Count(r.Losses.Steps, "step"), siblingMicros*c.Context, r.Losses.Table())
}

// HasRows reports whether there is something to show, whatever ended the training.
func (r ContestReport) HasRows() bool { return r.Losses != nil }

// contestCodec tries a codec in every schedule with every micro-batch.
func contestCodec(ctx context.Context, name string, microBatches []int) (c ContestCodec, err error) {
	codec, err := plan.ParseCodec(name)
	if err != nil {
		return c, err
	}
	first := nanogpt.Entries()[0]
	c.Codec = name
	if c.First, err = nanogpt.Try(codec, nanogpt.Plain, first.MicroBatch); err != nil {
		return c, err
	}
	for _, spec := range nanogpt.Schedules() {
		var least nanogpt.Trial
		for _, n := range microBatches {
			if err := ctx.Err(); err != nil {
				return c, err
			}
			t, err := nanogpt.Try(codec, spec, n)
			if err != nil {
				return c, err
			}
			if least.Step == 0 || t.Step < least.Step {
				least = t
			}
		}
		if c.Schedules = append(c.Schedules, least); c.Best.Step == 0 || least.Step < c.Best.Step {
			c.Best = least
		}
	}
	return c, nil
}

// Text returns the report for people.
func (r ContestReport) Text() string {
	var w strings.Builder
	fmt.Fprintf(&w, "Protocol NanoGPT, simulated: a pipeline of %d stages with one layer of width %d each, %d tokens a step. All that a stage\n", nanogpt.Stages, nanogpt.Channels, nanogpt.StepTokens)
	fmt.Fprintf(&w, "receives, from either side, passes one wire of %d Mbit/s, which each message keeps for %s more.\n\n", nanogpt.Lines().BitsPerS/1e6, plan.Duration(nanogpt.Lines().Fixed))
	t := tabwriter.NewWriter(&w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "published entry\tbytes a token\tsequences\tpublished\tsimulated\tdifference\t")
	for _, e := range r.Entries {
		fmt.Fprintf(t, "%s\t%d\t%d\t%s\t%s\t%+.2f%%\t\n", e.Name, 2*e.BytesAToken, e.MicroBatch, seconds(e.Published), seconds(e.Step), 100*e.Error())
	}
	t.Flush()
	w.WriteString("\nThis program's codecs between stages. Bytes of a token cross each boundary, both ways together; sequences are those of a micro-batch:\n\n")
	fmt.Fprintf(t, "codec\tbytes a token\t%s, %d sequences\tleast step\tschedule\tsequences\tnone below\t\n", r.Codecs[0].First.Schedule, r.Codecs[0].First.MicroBatch)
	for _, c := range r.Codecs {
		fmt.Fprintf(t, "%s\t%.1f\t%s\t%s\t%s\t%d\t%s\t\n", c.Codec, float64(c.First.MilliBytesAToken)/1000, seconds(c.First.Step), seconds(c.Best.Step), c.Best.Schedule, c.Best.MicroBatch, seconds(c.Best.Bound))
	}
	t.Flush()
	w.WriteString("\nThe least step of each schedule, with the sequences of its micro-batch:\n\n")
	fmt.Fprint(t, "schedule\t")
	for _, c := range r.Codecs {
		fmt.Fprintf(t, "%s\t", c.Codec)
	}
	for i, first := range r.Codecs[0].Schedules {
		fmt.Fprintf(t, "\n%s\t", first.Schedule)
		for _, c := range r.Codecs {
			fmt.Fprintf(t, "%s (%d)\t", seconds(c.Schedules[i].Step), c.Schedules[i].MicroBatch)
		}
	}
	fmt.Fprintln(t)
	t.Flush()
	w.WriteString(contestWords)
	if r.Losses != nil {
		w.WriteString("\n" + r.siblingText())
	}
	return w.String()
}

// contestWords says what the figures mean.
const contestWords = `
"None below" holds for any order of such messages: those that a middle stage receives follow each other, the first one comes over the
stages before, and what the last one brings goes back to the first stage. Where 1F1B is next to it, only fewer bytes shorten a step.
Passes take what they took the published bf16 entry on eight H100; this program's have not been measured on those. Schedules that
cut a layer or hold the model twice are left out. The contest's score is the step times the number of steps until the loss is 3.276:
no simulation says how many a codec needs.
`

// seconds prints a step as the contest does.
func seconds(n schedule.Nanos) string { return fmt.Sprintf("%.3f s", float64(n)/1e9) }
