package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"pnode/node/progress"
	"pnode/node/weights"
)

func (e environment) importCommand() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:   "import MODEL --dir FOLDER",
		Short: "Check a Hugging Face model and make it ready to train",
		Long: `Read a Hugging Face model (config.json, model.safetensors in one or several files, and a
tokenizer), check every field, tensor and value, and store the model in FOLDER with checksums. A
setting that this program does not compute is an error.

"pnode train --init FOLDER" starts from it, without the folder that the model came from.
"pnode train --init MODEL" does both in one step.

Ctrl-C or SIGTERM ends it at once, and nothing is left at FOLDER.`,
		Example: `  pnode import ~/gpt2 --dir ~/gpt2-imported
  pnode import hf:openai-community/gpt2 --dir ~/gpt2-imported
  pnode train --init ~/gpt2-imported --data shards`,
		Args: usageArgs(cobra.MatchAll(one("the folder to read"), named)),
		RunE: func(c *cobra.Command, args []string) error {
			if dir == "" {
				return usageError{c.CommandPath(), errors.New("--dir is missing: name a new folder")}
			}
			defer ownFiles()()
			err := e.withModel(c.Context(), modelFlags{dir: args[0]}, func(m *weights.Model) error { return e.importModel(c.Context(), m, dir) })
			if errors.Is(err, context.Canceled) {
				fmt.Fprintf(e.stderr, "nothing was imported: there is no model in %s\n", dir)
			}
			return err
		},
	}
	c.Flags().StringVar(&dir, "dir", "", "`FOLDER` to create")
	return c
}

func (e environment) importModel(ctx context.Context, m *weights.Model, dir string) error {
	bar := progress.NewBar(e.stderr, isTerminal(e.stderr), "import", int64(m.Config.Layers()), time.Now)
	err := weights.Import(ctx, m, dir, func(done, _ int) { bar.At(int64(done)) })
	bar.Close()
	if err != nil {
		return err
	}
	if m.Words == nil {
		fmt.Fprintf(e.stderr, "warning: %s: text cannot be turned into this model's tokens\n", sentence(m.NoWords))
	}
	c := m.Config
	fmt.Fprintf(e.stdout, "%s: %.1f M parameters, %d blocks, context %d, vocabulary %d, stored as %s; train it with\n  pnode train --init %s --data shards\n",
		dir, float64(c.Params())/1e6, c.Blocks, c.Context, c.Vocab, m.DType, dir)
	return nil
}
