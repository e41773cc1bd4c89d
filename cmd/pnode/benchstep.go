package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"pnode/deploy/image"
	"pnode/node/bench"
)

func (e environment) benchStepCommand() *cobra.Command {
	var o bench.StepOptions
	c := &cobra.Command{
		Use:   "step",
		Short: "Training steps against PyTorch",
		Long: `Measure training steps (forward, backward, clipping, AdamW, f32) of a character model of
10.8 M parameters and of GPT-2 with 124 M: tokens a second, the most memory that was ever
resident, and where the time goes.

PyTorch runs the same model in plain code as a process of its own, with its fused AdamW
and fused attention where its version has them; without it the table has this program's
figures alone.`,
		Example: `  pnode bench step
  pnode bench step --model 10m --sequence 256 --threads 2
  pnode bench step --python ~/venv/bin/python --json > step.json`,
	}
	f := e.measures(c, func(ctx context.Context, progress func(string)) (report, error) {
		binary, err := image.Executable()
		if err != nil {
			return nil, err
		}
		o.Binary, o.Progress = binary, progress
		return bench.Steps(ctx, o)
	})
	f.StringSliceVar(&o.Models, "model", nil, "`NAMES` among "+strings.Join(bench.StepModels(), ", ")+" (default all)")
	f.IntSliceVar(&o.Sequences, "sequence", nil, "`LENGTHS` of a sequence (default 256,1024)")
	f.IntSliceVar(&o.Threads, "threads", nil, "numbers of threads (default 1 and every core)")
	f.IntVar(&o.Rounds, "rounds", 3, "measurements on each side")
	f.StringVar(&o.Python, "python", "python3", "`PATH` of a Python with PyTorch")
	return c
}
