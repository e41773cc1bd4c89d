package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"pnode/kernels"
	"pnode/node/infer"
	"pnode/node/progress"
	"pnode/node/weights"
	"pnode/pipeline/model"
	"pnode/planner/plan"
)

func (e environment) generateCommand() *cobra.Command {
	var from modelFlags
	var on computeFlags
	p, prompts, storage := infer.Prompt{}, "", "f32"
	c := &cobra.Command{
		Use:   "generate [--dir FOLDER] --prompt TEXT",
		Short: "Continue a text with a model",
		Long: `Continue a text with the newest checkpoint of a run, which may go on meanwhile, or with a Hugging Face model.
The text goes to standard output as it comes, the speed to standard error. The same seed gives
the same text. Several texts come in their order, each behind a line ` + "`--- text 2 of 8, seed 6`" + `, as soon as it
and all before it are done.`,
		Example: `  pnode generate --prompt "func main() {"            with the newest run
  pnode generate --dir ~/gpt2 --prompt "Once upon a time" --temperature 0.8 --top-p 0.95
  pnode generate --dir ~/run7 --prompt "" --tokens 400 --temperature 0
  pnode generate --dir ~/gpt2 --prompt "Once" --devices cuda:1     on this card, not the fastest
  pnode generate --dir ~/gpt2 --prompt "Once" --storage bf16         up to twice as fast
  pnode generate --dir ~/gpt2 --prompt "Once" --storage int8         up to 3 times as fast, with AVX2 or AVX-512
  pnode generate --dir ~/gpt2 --prompt "Once" --batch 8              eight texts
  pnode generate --dir ~/gpt2 --prompts lines.txt --batch 8 > out.txt  a text for each line
  pnode generate --dir hf:openai-community/gpt2 --prompt "Once"      downloads it first, unless it is here
  pnode generate --dir ~/llama --lora ~/my-adapter --prompt "Dear"`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if p.Tokens < 1 {
				return usageError{c.CommandPath(), fmt.Errorf("--tokens is %d: want 1 or more", p.Tokens)}
			}
			if err := p.Sampling.Validate(); err != nil {
				return usageError{c.CommandPath(), err}
			}
			switch storage {
			case "f32":
			case "bf16":
				p.Storage = model.StorageBF16
			case "int8":
				p.Storage = model.StorageInt8
			default:
				return usageError{c.CommandPath(), fmt.Errorf("--storage is %q: want f32, bf16 or int8", storage)}
			}
			if p.AtOnce < 1 || p.AtOnce > model.MaxSequences {
				return usageError{c.CommandPath(), fmt.Errorf("--batch is %d: want 1 to %d", p.AtOnce, model.MaxSequences)}
			}
			switch {
			case c.Flags().Changed("prompts") && c.Flags().Changed("prompt"):
				return usageError{c.CommandPath(), errors.New("--prompt and --prompts are given: leave one of them out")}
			case c.Flags().Changed("prompts"):
				var err error
				if p.Texts, err = readPrompts(prompts); err != nil {
					return usageError{c.CommandPath(), err}
				}
			case p.AtOnce > 1 && p.Sampling.Temperature == 0:
				return usageError{c.CommandPath(), fmt.Errorf("--batch %d of one --prompt at --temperature 0 writes the same text %[1]d times: leave --batch out, or give a temperature above 0 or --prompts", p.AtOnce)}
			case p.AtOnce > 1:
				p.Texts = slices.Repeat([]string{p.Text}, p.AtOnce)
			}
			return e.withModel(c.Context(), from, func(m *weights.Model) error {
				return e.onDevice(c.Context(), on, m, func(d kernels.Device) error {
					p.Device = d
					err := e.generate(c.Context(), m, p)
					if errors.Is(err, kernels.ErrOutOfMemory) && p.AtOnce > 1 {
						err = fmt.Errorf("%w: fewer texts at a time (--batch) take less", err)
					}
					return withOtherStorage(err, p.Storage, d.Name())
				})
			})
		},
	}
	f := c.Flags()
	f.SortFlags = false
	from.add(f)
	f.StringVar(&p.Text, "prompt", "", "`TEXT` to continue; without it a new document begins")
	f.StringVar(&prompts, "prompts", "", "`FILE` with a text to continue on each line")
	f.IntVar(&p.AtOnce, "batch", 1, "how many texts to write at a time, which takes little longer than one: the lines of --prompts, or --prompt so many times. The first draws with --seed, each further one with the seed after it")
	f.IntVar(&p.Tokens, "tokens", 200, "largest number of tokens to add")
	f.Float64Var(&p.Sampling.Temperature, "temperature", 0.8, "higher draws more freely; 0 takes the most likely token")
	f.IntVar(&p.Sampling.TopK, "top-k", 0, "draw among this many most likely tokens; 0 is all")
	f.Float64Var(&p.Sampling.TopP, "top-p", 0, "draw among the most likely tokens with this total probability; 0 is all")
	f.Uint64Var(&p.Sampling.Seed, "seed", 1, "seed of the draws")
	f.StringVar(&storage, "storage", storage, "`TYPE` of weights: f32; bf16, which takes half of the memory and of the time to read it, and rounds what products read to 8 bits; or on processors int8, weights alone, with a scale for each 64, in little more than a quarter")
	on.add(f)
	return c
}

// withOtherStorage adds to an error what helps where a device lacks calls with a storage.
func withOtherStorage(err error, s model.Storage, device string) error {
	help := map[model.Storage]string{model.StorageBF16: "take --storage f32", model.StorageInt8: "take --storage bf16 or f32, or --devices cpu"}[s]
	if help == "" || !errors.Is(err, kernels.ErrUnsupported) {
		return err
	}
	return fmt.Errorf("--storage is %q, which %s cannot compute: %s: %w", s.String(), device, help, err)
}

func (e environment) generate(ctx context.Context, m *weights.Model, p infer.Prompt) error {
	e.tellModel(m, p.Device)
	if len(p.Texts) > 0 {
		return e.generateAll(ctx, m, p)
	}
	text := progress.NewStream(e.stdout, isTerminal(e.stdout))
	if _, err := io.WriteString(e.stdout, p.Text); err != nil {
		return err
	}
	p.Write = func(_ int, b []byte) error { return text.Write(b) }
	g, err := infer.Generate(ctx, m, p)
	if errors.Is(err, context.Canceled) && g.Tokens > 0 {
		err = nil // the text so far is shown
	}
	if err := errors.Join(err, text.Close()); err != nil {
		return err
	}
	_, err = fmt.Fprintln(e.stderr, generated(g, 1))
	return err
}

// --prompts has so many bytes and lines at most.
const (
	mostPrompts = 16 << 20
	mostLines   = 100_000
)

// readPrompts returns the lines of a file that are not empty.
func readPrompts(path string) (lines []string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("--prompts: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, mostPrompts+1))
	if err != nil {
		return nil, fmt.Errorf("--prompts: %w", err)
	}
	if len(text) > mostPrompts {
		return nil, fmt.Errorf("--prompts is a file of more than %d MiB: split it", mostPrompts>>20)
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimRight(line, "\r\n"); line != "" {
			lines = append(lines, line)
		}
	}
	if len(lines) > mostLines {
		return nil, fmt.Errorf("--prompts: %s has %s: split it into files of at most %s", path, plan.Count(len(lines), "line"), plan.Number(mostLines))
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("--prompts: %s has no lines: write a text to continue on each", path)
	}
	return lines, nil
}

// generateAll prints each text when it and those before are done, behind a line with its number and seed; at an error those too that have begun.
func (e environment) generateAll(ctx context.Context, m *weights.Model, p infer.Prompt) error {
	texts, done, next := make([][]byte, len(p.Texts)), make([]bool, len(p.Texts)), 0
	show := func() error {
		i := next
		next++
		shown := progress.NewStream(e.stdout, isTerminal(e.stdout))
		head := fmt.Sprintf("--- text %d of %d, seed %d\n%s", i+1, len(texts), p.Sampling.Seed+uint64(i), p.Texts[i])
		err := errors.Join(shown.Write([]byte(head)), shown.Write(texts[i]), shown.Close())
		texts[i] = nil
		return err
	}
	p.Write = func(text int, b []byte) error {
		texts[text] = append(texts[text], b...)
		return nil
	}
	p.Ended = func(text int) error {
		done[text] = true
		for next < len(done) && done[next] {
			if err := show(); err != nil {
				return err
			}
		}
		return nil
	}
	g, err := infer.Generate(ctx, m, p)
	if errors.Is(err, context.Canceled) && g.Tokens > 0 {
		err = nil // the texts so far are shown
	}
	for next < len(texts) {
		if len(texts[next]) == 0 && !done[next] { // has not begun
			next++
			continue
		}
		if failed := show(); failed != nil {
			return errors.Join(err, failed)
		}
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(e.stderr, generated(g, len(texts)))
	return err
}

// generated returns the size and speed of some texts on one line.
func generated(g infer.Generated, texts int) string {
	line := fmt.Sprintf("%d tokens", g.Tokens)
	if g.Tokens == 1 {
		line = "1 token"
	}
	if speed := g.PerSecond(); speed > 0 {
		line += fmt.Sprintf(", %.1f tokens/s", speed)
	}
	line += fmt.Sprintf(", the first after %s (prompt of %d), loaded in %s",
		plan.Duration(g.First), g.PromptTokens, plan.Duration(g.Load))
	switch {
	case texts > 1:
		line += fmt.Sprintf("; the model ended %d of %d texts", g.Ended, texts)
	case g.Ended > 0:
		line += "; the model ended the text"
	}
	return line
}
