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
	"pnode/node/dataset/synthetic"
	"pnode/node/infer"
	"pnode/node/progress"
	"pnode/node/weights"
)

func (e environment) evalCommand() *cobra.Command {
	var from modelFlags
	var on computeFlags
	var o infer.ScoreOptions
	var own bool
	c := &cobra.Command{
		Use:   "eval [--dir FOLDER] [--own-text] [FILE...]",
		Short: "Measure how well a model predicts texts",
		Long: `Print a model's perplexity, its mean loss in nats per token, and its bits per byte, for each file
and for all together. Bits per byte compare models with different tokenizers. The model is the
newest checkpoint of a run, which may go on meanwhile, or a Hugging Face model.

A file is one document, cut into windows that do not overlap. Each token is predicted from the
tokens before it in its window.

--own-text takes lines like those that "pnode train" writes where it is given no text, but none
that runs train on: new sums and sentences. Of sums and products, there and in files, it counts
the digits of right results that the model takes for the most likely.`,
		Example: `  pnode eval --dir ~/run7 held-out.txt
  pnode eval --own-text                      how well the newest run computes
  pnode eval --dir hf:openai-community/gpt2 held-out.txt
  pnode eval --dir ~/gpt2 --window 512 chapter1.txt chapter2.txt`,
		Args: usageArgs(cobra.MatchAll(func(c *cobra.Command, args []string) error {
			if own {
				return nil
			}
			return atLeastOne("file of text to predict, or give --own-text")(c, args)
		}, named)),
		RunE: func(c *cobra.Command, args []string) error {
			return e.withModel(c.Context(), from, func(m *weights.Model) error {
				return e.onDevice(c.Context(), on, m, func(d kernels.Device) error {
					o.Device = d
					return e.eval(c.Context(), m, o, args, own)
				})
			})
		},
	}
	f := c.Flags()
	f.SortFlags = false
	from.add(f)
	f.IntVar(&o.Window, "window", 0, fmt.Sprintf("tokens in a window (default the model's context, up to %d)", infer.DefaultWindow))
	f.BoolVar(&own, "own-text", false, "predict lines like those that pnode writes itself, which no run trains on")
	on.add(f)
	return c
}

func (e environment) eval(ctx context.Context, m *weights.Model, o infer.ScoreOptions, paths []string, own bool) (err error) {
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
	add := func(name string, text []byte) error {
		bar := progress.NewBar(e.stderr, isTerminal(e.stderr), name, int64(len(text)), time.Now)
		score, err := scorer.Score(ctx, text, func(s infer.Score) { bar.At(s.Bytes) })
		bar.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if score.Tokens == 0 {
			return fmt.Errorf("%s: it holds no token to predict", name)
		}
		scores = append(scores, progress.FileScore{Path: name, Score: score})
		return nil
	}
	if own {
		if err := add("own text", synthetic.Unseen()); err != nil {
			return err
		}
	}
	for _, path := range paths {
		text, err := readText(path)
		if err == nil {
			err = add(path, text)
		}
		if err != nil {
			return err
		}
	}
	return progress.Scores(e.stdout, scores)
}

// readText reads a file of at most maxScoredBytes.
func readText(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxScoredBytes+1))
	_ = f.Close() // only read
	if err == nil && len(text) > maxScoredBytes {
		err = fmt.Errorf("%s is over %d bytes: cut it into files", path, maxScoredBytes)
	}
	return text, err
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
