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
		Long: `Measure each GPU in these rows:

  products   bf16 products by this program's kernels against cuBLASLt, and cuBLASLt as this
             program calls it against PyTorch
  attention  causal attention with gradients against PyTorch's flash attention
  step       a training step of GPT-2 with 124 M parameters against eager PyTorch, with the
             largest micro-batch that fits both; compiled: against compiled PyTorch
  large      a step of a model of 1.3 B parameters against the peak of the device
  repeat     losses of a second run, to the bit; losses: against those of the processor

PyTorch runs as a process of its own (--python); its cuBLASLt is used where the system has none.
A row that cannot be measured or compared stays open, with the reason. Leave the machine alone
meanwhile: PyTorch's compiler and the larger models take minutes. After an interrupt the rows
so far are shown.

MFU is the work of a step over the peak in the card's data sheet (for an unknown card: over its
fastest product). The work of a token is 6 operations for each multiplied parameter, and
6 L C (T+1) for causal attention. A step has one micro-batch and its update.`,
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
	f.Var(&flags.Devices, "devices", "devices to measure, for example cuda:0,opencl:1; auto takes every GPU that works")
	f.StringSliceVar(&o.Only, "only", nil, "`ROWS` among "+strings.Join(bench.DeviceRows(), ", ")+" (default all)")
	f.StringVar(&o.Size, "size", bench.DeviceSizes()[0], "`SIZE` of what is measured: "+strings.Join(bench.DeviceSizes(), ", ")+fmt.Sprintf("; targets are for %s", bench.DeviceSizes()[0]))
	f.IntVar(&o.Rounds, "rounds", 5, "measurements on each side")
	f.DurationVar(&o.Limit, "limit", 15*time.Minute, "longest time for a row, or for PyTorch to start")
	f.BoolVar(&strict, "strict", false, "fail if losses miss their target, or if a figure is open that this machine could give")
	f.StringVar(&o.Python, "python", "python3", "`PATH` of a Python with PyTorch")
	return c
}
