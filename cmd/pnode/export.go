package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"pnode/node/config"
	"pnode/node/progress"
	"pnode/node/weights"
)

// exportTypes are the element types of an export.
var exportTypes = []string{"f32", "bf16", "f16"}

func (e environment) exportCommand() *cobra.Command {
	var from modelFlags
	var o weights.ExportOptions
	var adapter bool
	var base string
	shard := 5 * config.GB
	c := &cobra.Command{
		Use:   "export OUT [--dir FOLDER]",
		Short: "Write a model as a Hugging Face folder",
		Long: `Write the newest checkpoint of a run, which may go on meanwhile, as a folder that Python's transformers loads:
config.json, model.safetensors (several files for large models) and the tokenizer's files.
Adapters are merged into the weights; --adapter writes them alone, as Python's peft loads them.`,
		Example: `  pnode export ~/my-model                       the newest run
  pnode export ~/my-model --dir ~/run7 --dtype bf16
  pnode export ~/my-adapter --adapter --base meta-llama/Llama-3.2-1B
  pnode export ~/merged --dir ~/llama --lora ~/my-adapter --dtype bf16`,
		Args: usageArgs(cobra.MatchAll(one("the folder to write"), named)),
		RunE: func(c *cobra.Command, args []string) error {
			if st, err := os.Stat(args[0]); err == nil && !st.IsDir() {
				return usageError{c.CommandPath(), fmt.Errorf("%s is a file: name a new folder to write", args[0])}
			}
			if o.DType != "" && !slices.Contains(exportTypes, o.DType) {
				return usageError{c.CommandPath(), fmt.Errorf("--dtype is %s: want one of %s", o.DType, strings.Join(exportTypes, ", "))}
			}
			if shard < config.MB {
				return usageError{c.CommandPath(), fmt.Errorf("--shard-size is %v: want %v or more", shard, config.MB)}
			}
			if base != "" && !adapter {
				return usageError{c.CommandPath(), fmt.Errorf("--base is %s: want none without --adapter", base)}
			}
			if adapter && (o.DType != "" || c.Flags().Changed("shard-size")) {
				return usageError{c.CommandPath(), errors.New("leave --dtype and --shard-size out with --adapter, which writes one file of f32")}
			}
			if adapter {
				return e.withModel(c.Context(), from, func(m *weights.Model) error {
					if err := m.ExportAdapter(c.Context(), args[0], base); err != nil {
						return err
					}
					_, err := fmt.Fprintf(e.stdout, "%s: the adapters of %s\n", args[0], m.From)
					return err
				})
			}
			o.ShardBytes = int64(shard)
			return e.withModel(c.Context(), from, func(m *weights.Model) error { return e.export(c.Context(), m, args[0], o) })
		},
	}
	f := c.Flags()
	f.SortFlags = false
	from.add(f)
	f.StringVar(&o.DType, "dtype", "", "`TYPE` of the weights: f32, bf16 or f16 (default f32; for an imported model its own)")
	f.Var(&shard, "shard-size", "largest size of one file of weights")
	f.BoolVar(&adapter, "adapter", false, "write only the adapters (PEFT layout)")
	f.StringVar(&base, "base", "", "`NAME` or folder of the model that the adapters belong to")
	return c
}

func (e environment) export(ctx context.Context, m *weights.Model, out string, o weights.ExportOptions) error {
	bar := progress.NewBar(e.stderr, isTerminal(e.stderr), "export", int64(m.Config.Layers()), time.Now)
	o.Progress = func(done, _ int) { bar.At(int64(done)) }
	dtype, err := m.Export(ctx, out, o)
	bar.Close()
	if err != nil {
		return err
	}
	fmt.Fprintf(e.stdout, "%s: %s, %.1f M parameters as %s\n", out, m.From, float64(m.Config.Params())/1e6, dtype)
	if m.Words == nil {
		fmt.Fprintf(e.stderr, "warning: %s: %s holds the weights alone\n", sentence(m.NoWords), filepath.Base(out))
	}
	return nil
}
