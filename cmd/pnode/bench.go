package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"pnode/node/bench"
)

func (e environment) benchCommand() *cobra.Command {
	var worker string
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure kernels, training steps, schedules and GPUs",
		Long: `Measure this machine and compare it with other programs, on the same cores in the same run. Both
sides take turns; figures are medians. Leave the machine alone meanwhile.
PNODE_CPU=avx2|avx512|neon|generic chooses this program's instruction set.`,
		Example: `  pnode bench kernels                  matrix products against OpenBLAS
  pnode bench step                     training steps against PyTorch
  pnode bench schedules                pipeline schedules on emulated slow links
  pnode bench devices                  GPUs against cuBLASLt and PyTorch
  pnode bench kernels --json | jq .summary`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if worker != "" {
				return bench.Worker(c.Context(), worker, e.stdin, e.stdout)
			}
			return c.Help()
		},
	}
	c.Flags().StringVar(&worker, "worker", "", "be this program's side of a measurement")
	c.Flags().Lookup("worker").Hidden = true
	c.AddCommand(e.benchKernelsCommand(), e.benchStepCommand(), e.benchSchedulesCommand(), e.benchDevicesCommand())
	return c
}

func (e environment) benchKernelsCommand() *cobra.Command {
	var o bench.KernelOptions
	c := &cobra.Command{
		Use:   "kernels",
		Short: "Matrix products against OpenBLAS, and the machine's limits",
		Long: `Measure f32 matrix products in the shapes of training, with operands plain (NN), B
transposed (NT, the forward pass of a linear layer) and A transposed and added to what is
there (TN, the gradient of its weight).

OpenBLAS runs as a process of its own through Python's ctypes; without it the table has only
this program's figures. OPENBLAS_CORETYPE=Haswell makes it compute with AVX2 where
it would take AVX-512.`,
		Example: `  pnode bench kernels
  pnode bench kernels --threads 1 --rounds 21
  PNODE_CPU=avx2 OPENBLAS_CORETYPE=Haswell pnode bench kernels --json > kernels.json`,
	}
	f := e.measures(c, func(ctx context.Context, progress func(string)) (report, error) {
		o.Progress = progress
		return bench.Kernels(ctx, o)
	})
	f.IntVar(&o.Rounds, "rounds", 5, "measurements on each side")
	f.IntSliceVar(&o.Threads, "threads", nil, "numbers of threads to try (default 1 and all cores)")
	f.StringVar(&o.Python, "python", "python3", "`PATH` of the Python that loads OpenBLAS")
	f.StringVar(&o.Library, "library", "", "`PATH` of OpenBLAS (default the system's)")
	return c
}

// measures makes c run a measurement and print its report; it returns the command's flags.
func (e environment) measures(c *cobra.Command, measure func(ctx context.Context, progress func(string)) (report, error)) *pflag.FlagSet {
	var asJSON bool
	c.Args = usageArgs(cobra.NoArgs)
	c.RunE = func(c *cobra.Command, _ []string) error {
		var progress func(string)
		if isTerminal(e.stderr) {
			progress = func(what string) { fmt.Fprintf(e.stderr, "\r\x1b[K%s", what) }
		}
		r, err := measure(c.Context(), progress)
		return e.showBench(r, asJSON, err)
	}
	f := c.Flags()
	f.SortFlags = false
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	return f
}

// report prints the result of a measurement.
type report interface{ Text() string }

// showBench prints a report unless there was an error before it had rows; an interrupt is not one
// of the measurement.
func (e environment) showBench(r report, asJSON bool, err error) error {
	if isTerminal(e.stderr) {
		fmt.Fprint(e.stderr, "\r\x1b[K")
	}
	if partial, ok := r.(interface{ HasRows() bool }); err != nil && !(ok && partial.HasRows()) {
		return err
	}
	if asJSON {
		return errors.Join(err, json.NewEncoder(e.stdout).Encode(r))
	}
	_, wrote := fmt.Fprint(e.stdout, r.Text())
	return errors.Join(err, wrote)
}
