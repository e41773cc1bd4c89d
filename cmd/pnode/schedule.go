package main

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"pnode/node/dataset/files"
	"pnode/pipeline/schedule/study"
	"pnode/pipeline/trace"
	"pnode/planner/plan"
)

// scheduleFlags holds the flags of the command.
type scheduleFlags struct {
	request               study.Request
	words                 study.Words
	trace                 []string
	step                  int
	svg                   string
	list, asJSON, program bool
}

func (e environment) scheduleCommand() *cobra.Command {
	var o scheduleFlags
	c := &cobra.Command{
		Use:   "schedule",
		Short: "Show and time a pipeline schedule, without computing anything",
		Long: `Make a pipeline schedule, print its grid and simulate it. In the grid 2F0 is the forward of
micro-batch 0 on stage 2; B is a backward, I and W are its input and weight gradient, and R is a
recomputation. The report says how long the schedule takes, how much of that is bubble, how many
activations each worker keeps, and what bounds it.

Times are in milliseconds or have a unit (250us, 2s). One value counts for all stages or links;
otherwise give one for each, separated by commas or by repeating the flag.`,
		Example: `  pnode schedule --list
  pnode schedule --kind 1f1b --stages 4 --micro 8
  pnode schedule --kind elastic --stages 4 --micro 64 --link 0,2:4,0 --svg elastic.svg
  pnode schedule --kind elastic --stages 4 --micro 64 --link 2:4 --cap 6,5,4,3
  pnode schedule --kind interleaved:v=2,f=8+4,b=5+7 --stages 8 --micro 12 --link 0:1.5
  pnode schedule --kind chimera --stages 8 --micro 16 --json | jq .bubble
  pnode schedule --trace run.trace.json --step 20 --svg step20.svg`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if o.list {
				if o.asJSON {
					return study.ListJSON(e.stdout)
				}
				return study.List(e.stdout)
			}
			if len(o.trace) > 0 {
				return e.measuredSchedule(o.trace, o.step, o.svg)
			}
			if err := o.request.Read(o.words); err != nil {
				return usageError{c.CommandPath(), err}
			}
			return e.schedule(o)
		},
	}
	o.add(c.Flags())
	return c
}

func (o *scheduleFlags) add(f *pflag.FlagSet) {
	f.SortFlags = false
	r, w := &o.request, &o.words
	f.StringVar(&r.Kind, "kind", "elastic", "`KIND` of schedule, with settings as in kfkb:k=3")
	f.IntVar(&r.Options.Stages, "stages", 4, "stages of the model on all workers together")
	f.IntVar(&r.Options.Micros, "micro", 16, "micro-batches in a step")
	f.StringSliceVar(&w.Forward, "forward", []string{"1"}, "`TIMES` of a stage's forward")
	f.StringSliceVar(&w.Backward, "backward", []string{"2"}, "`TIMES` of a stage's backward")
	f.StringSliceVar(&w.Weight, "weight", nil, "`TIMES` of the weight gradient, which is part of the backward (default half of it)")
	f.StringSliceVar(&w.Recompute, "recompute", nil, "`TIMES` of a recomputation; stages with 0 keep their activations (default 0)")
	f.StringSliceVar(&w.Update, "update", nil, "`TIMES` of the optimizer step (default 0)")
	f.StringSliceVar(&w.Links, "link", nil, "`TRANSFER:LATENCY` of a message to the next stage (default 0:0)")
	f.StringSliceVar(&w.Jitter, "jitter", nil, "mean `TIME` of random extra latency")
	f.Uint64Var(&r.Jitter.Seed, "seed", 0, "seed of the jitter")
	f.IntSliceVar(&r.Caps, "cap", nil, "micro-batches whose activations fit on a worker: one `NUMBER`, or one for each worker")
	f.IntVar(&r.Options.Chunks, "chunks", 0, "stages on each worker")
	f.IntVar(&r.Options.Depth, "depth", 0, "forwards to start ahead for each later worker")
	f.IntVar(&r.Options.Group, "group", 0, "micro-batches in a group")
	f.IntSliceVar(&r.Options.Forward, "forward-groups", nil, "`SIZES` of groups of interleaved forwards")
	f.IntSliceVar(&r.Options.Backward, "backward-groups", nil, "`SIZES` of groups of interleaved backwards")
	f.IntVar(&r.Options.Pairs, "pairs", 0, "pairs of pipelines (chimera)")
	f.IntVar(&r.Options.Segments, "segments", 0, "segments of a sequence (seq1f1b)")
	f.StringSliceVar(&o.trace, "trace", nil, "show a step that ran, from the `FILES` of train --trace, with its prediction")
	f.IntVar(&o.step, "step", 0, "step of --trace to show (default the newest)")
	f.StringVar(&o.svg, "svg", "", "draw the timeline to `FILE`")
	f.BoolVar(&o.program, "program", false, "print only the workers' lists of actions")
	f.BoolVar(&o.list, "list", false, "explain all kinds")
	f.BoolVar(&o.asJSON, "json", false, "print one JSON object")
}

func (e environment) schedule(o scheduleFlags) error {
	s, err := study.Run(o.request)
	if err != nil {
		return err
	}
	if o.svg != "" {
		if err := writePicture(o.svg, s); err != nil {
			return err
		}
	}
	switch {
	case o.asJSON:
		return s.JSON(e.stdout)
	case o.program:
		_, err := fmt.Fprint(e.stdout, s.Program)
		return err
	}
	return s.Text(e.stdout)
}

// picture draws itself as SVG.
type picture interface{ SVG(w io.Writer) error }

func writePicture(file string, p picture) error {
	var b bytes.Buffer
	if err := p.SVG(&b); err != nil {
		return err
	}
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write the picture: %w", err)
	}
	return nil
}

// measuredSchedule prints a step of a run's traces next to its prediction. Step 0 takes the newest one.
func (e environment) measuredSchedule(names []string, step int, svg string) error {
	t, err := readTraces(names)
	if err != nil {
		return err
	}
	keys := t.Keys()
	if len(keys) == 0 {
		return fmt.Errorf("%w: the trace has no spans", trace.ErrBadTrace)
	}
	key, found := keys[len(keys)-1], step == 0
	for _, k := range keys {
		if k.Step == plan.Step(step) {
			key, found = k, true // the newest generation that took it
		}
	}
	if !found {
		return fmt.Errorf("%w: the trace has no step %d: want %d to %d", study.ErrBadRequest, step, keys[0].Step, keys[len(keys)-1].Step)
	}
	line := t.Timeline(key)
	workers := make([]string, len(line.Workers))
	for w := range workers {
		workers[w] = t.Names[w]
	}
	m := study.Measure(fmt.Sprintf("step %d of generation %d", key.Step, key.Generation), workers, t.Segments(key), line)
	if svg != "" {
		if err := writePicture(svg, m); err != nil {
			return err
		}
	}
	return m.Text(e.stdout)
}

// readTraces returns the traces of one or several nodes as one.
func readTraces(names []string) (trace.Trace, error) {
	var all []trace.Trace
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			return trace.Trace{}, files.Explain(err)
		}
		t, err := trace.Read(f)
		f.Close()
		if err != nil {
			return trace.Trace{}, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, t)
	}
	return trace.Merge(all...), nil
}
