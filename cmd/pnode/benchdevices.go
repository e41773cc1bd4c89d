package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"pnode/deploy/image"
	"pnode/node/bench"
	"pnode/node/config"
)

func (e environment) benchDevicesCommand() *cobra.Command {
	var o bench.DeviceOptions
	var strict bool
	flags := config.Default()
	c := &cobra.Command{
		Use:   "devices",
		Short: "GPUs against cuBLASLt and PyTorch, in every figure that has a target",
		Long: `Measure each GPU: bf16 products by this program's kernels against cuBLASLt, and cuBLASLt as
this program calls it against PyTorch; causal attention with gradients against PyTorch's
flash attention; a training step of GPT-2 with 124 M against PyTorch, eager and compiled,
with the largest micro-batch that fits both side by side; a step of a model of 1.3 B against
the device's peak; losses of a second run, to the bit, and the processor's.

PyTorch runs as a process of its own (--python). Where the system has no cuBLASLt, that of
PyTorch is taken. A row that could not be measured, or not be compared, is left open, with
the reason. Leave the machine alone meanwhile: PyTorch's compiler and the larger models take
minutes. Interrupted, it shows the rows so far.

MFU is what a token of a step has to compute, 6 operations for each parameter that is
multiplied and 6 L C (T+1) for causal attention, over what the card's data sheet says, or
over the fastest product where the card is not in the list. A step has one micro-batch and
its update.`,
		Example: `  pnode bench devices --python ~/venv/bin/python
  pnode bench devices --devices cuda:0 --only products,attention --rounds 11
  pnode bench devices --strict --json > devices.json            fails where losses are wrong
  pnode bench devices --devices cpu --size small --rounds 1     tries the command out, in a minute`,
	}
	f := e.measures(c, func(ctx context.Context, progress func(string)) (report, error) {
		binary, err := image.Executable()
		if err != nil {
			return nil, err
		}
		o.Binary, o.Probe, o.Devices, o.Progress = binary, e.probe, flags.Devices.Names(), progress
		r, err := bench.Devices(ctx, o)
		if err == nil && strict {
			err = r.Strict()
		}
		return r, err
	})
	f.Var(&flags.Devices, "devices", "what to measure, for example cuda:0,opencl:1: auto takes every GPU that works")
	f.StringSliceVar(&o.Only, "only", nil, "`ROWS` among "+strings.Join(bench.DeviceRows(), ", ")+" (default all)")
	f.StringVar(&o.Size, "size", bench.DeviceSizes()[0], "`SIZE` of what is measured: "+strings.Join(bench.DeviceSizes(), ", ")+fmt.Sprintf("; targets are for %s", bench.DeviceSizes()[0]))
	f.IntVar(&o.Rounds, "rounds", 5, "measurements of each side")
	f.DurationVar(&o.Limit, "limit", 15*time.Minute, "how long a row, or PyTorch's first word, may take")
	f.BoolVar(&strict, "strict", false, "fail where losses miss their target, or a figure of this program is open that the machine has all for")
	f.StringVar(&o.Python, "python", "python3", "`PATH` of a Python with PyTorch")
	return c
}
