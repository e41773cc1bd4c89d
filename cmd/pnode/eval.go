package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"pnode/kernels"
	"pnode/node/dataset/corpus"
	"pnode/node/dataset/files"
	"pnode/node/infer"
	"pnode/node/progress"
	"pnode/node/weights"
)

func (e environment) evalCommand() *cobra.Command {
	var from modelFlags
	var on computeFlags
	var o infer.ScoreOptions
	c := &cobra.Command{
		Use:   "eval [--dir FOLDER] FILE...",
		Short: "Measure how well a model predicts texts",
		Long: `Print a model's perplexity, its mean loss in nats per token, and its bits per byte, for each file
and for all together. Bits per byte compare models with different tokenizers. The model is the
newest checkpoint of a run, which may go on meanwhile, or a Hugging Face model.

A file is one document, cut into windows that do not overlap. Each token is predicted from the
tokens before it in its window.`,
		Example: `  pnode eval --dir ~/run7 held-out.txt
  pnode eval --dir hf:openai-community/gpt2 held-out.txt
  pnode eval --dir ~/gpt2 --window 512 chapter1.txt chapter2.txt`,
		Args: usageArgs(cobra.MatchAll(atLeastOne("file of text to predict"), named)),
		RunE: func(c *cobra.Command, args []string) error {
			return e.withModel(c.Context(), from, func(m *weights.Model) error {
				return e.onDevice(c.Context(), on, m, func(d kernels.Device) error {
					o.Device = d
					return e.eval(c.Context(), m, o, args)
				})
			})
		},
	}
	f := c.Flags()
	f.SortFlags = false
	from.add(f)
	f.IntVar(&o.Window, "window", 0, fmt.Sprintf("tokens in a window (default the model's context, up to %d)", infer.DefaultWindow))
	on.add(f)
	return c
}

func (e environment) eval(ctx context.Context, m *weights.Model, o infer.ScoreOptions, paths []string) (err error) {
	for _, path := range paths { // before minutes go into the first ones
		if err := checkText(path); err != nil {
			return err
		}
	}
	scorer, err := infer.NewScorer(ctx, m, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, scorer.Close()) }()
	e.tellModel(m, o.Device)
	var scores []progress.FileScore
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		text, err := io.ReadAll(io.LimitReader(f, maxScoredBytes+1))
		_ = f.Close() // only read
		if err != nil {
			return err
		}
		if len(text) > maxScoredBytes {
			return fmt.Errorf("%s is over %d bytes: cut it into files", path, maxScoredBytes)
		}
		bar := progress.NewBar(e.stderr, isTerminal(e.stderr), path, int64(len(text)), time.Now)
		score, err := scorer.Score(ctx, text, func(s infer.Score) { bar.At(s.Bytes) })
		bar.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if score.Tokens == 0 {
			return fmt.Errorf("%s: it holds no token to predict", path)
		}
		scores = append(scores, progress.FileScore{Path: path, Score: score})
	}
	return progress.Scores(e.stdout, scores)
}

// maxScoredBytes bounds a file, whose tokens are held in memory.
const maxScoredBytes = 1 << 30

// checkText refuses what cannot be text; a pipe can.
func checkText(path string) error {
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return files.Explain(err)
	case st.IsDir():
		return fmt.Errorf("%w: %s is a folder; name the files in it", files.ErrNotRegular, path)
	case st.Mode().IsRegular() && st.Size() == 0:
		return fmt.Errorf("%w: %s is empty; leave it out", corpus.ErrNoText, path)
	case !st.Mode().IsRegular():
		return nil // what a pipe holds can be read once
	}
	f, err := os.Open(path)
	if err != nil {
		return files.Explain(err)
	}
	return f.Close()
}
