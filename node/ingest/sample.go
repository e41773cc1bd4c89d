package ingest

import (
	"context"
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"

	"pnode/kernels"
	"pnode/node/dataset/shard"
	"pnode/node/dataset/tokenizer"
	"pnode/pipeline/generate"
	"pnode/planner/plan"
)

// sampleTemperature is a little below 1: text that shows what the model knows.
const sampleTemperature = 0.8

// Writing says what a model writes.
type Writing struct {
	Run plan.RunSpec
	// Prompt is what the text begins with.
	Prompt string
	// Tokens are added to it, and the text has at most MaxBytes.
	Tokens, MaxBytes int
	Device           kernels.Device
	// Params fills dst with a layer's parameters.
	Params func(layer int, dst []float32) error
}

// Sample returns the prompt and what the model of a run writes after it, at the beginning of a document or line. The text is UTF-8, and a
// terminal can show it.
func (c Chunks) Sample(ctx context.Context, w Writing) (string, error) {
	words, err := shard.OpenTokenizer(ctx, c, w.Run.Data)
	if err != nil {
		return "", err
	}
	first := w.Run.Data.EndOfText()
	if first == plan.NoToken {
		first = '\n'
	}
	prompt := words.Encode([]int32{first}, []byte(w.Prompt))
	model, err := generate.New(generate.Config{
		Device: w.Device, Model: w.Run.Model, Params: w.Params, Positions: min(w.Run.Model.Context, len(prompt)+w.Tokens),
	})
	if err != nil {
		return "", err
	}
	tokens, err := model.Generate(ctx, generate.Request{
		Prompt: prompt, Tokens: w.Tokens, Sampling: generate.Sampling{Temperature: sampleTemperature, Seed: w.Run.Train.Seed},
	})
	if err := errors.Join(err, model.Close()); err != nil {
		return "", err
	}
	return printable(words, w.Run.Data, append(prompt[1:], tokens...), w.MaxBytes), nil
}

// printable turns tokens into text that a terminal can show; documents end with a line. Control
// characters and marks that turn text around become question marks.
func printable(words tokenizer.Tokenizer, d plan.DataSpec, tokens []int32, maxBytes int) string {
	var raw []byte
	for _, t := range tokens {
		if t == d.EndOfText() {
			raw = append(raw, '\n')
			continue
		}
		raw = words.Decode(raw, []int32{t})
	}
	raw = raw[:min(len(raw), maxBytes)] // a ? takes no more than what it replaces
	return strings.Map(func(r rune) rune {
		switch r {
		case '\n', '\r', '\t', '\u00ad', '\u200c', '\u200d':
			return r
		}
		if unicode.IsGraphic(r) && r != utf8.RuneError {
			return r
		}
		return '?'
	}, strings.ToValidUTF8(string(raw), "?"))
}
