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

// Sample has the finished model of a run write some text on a device, from the beginning of a
// document or line. params reads a layer's parameters. The text is UTF-8 of at most maxBytes,
// and a terminal can show it.
func (c Chunks) Sample(ctx context.Context, run plan.RunSpec, device kernels.Device, params func(layer int, dst []float32) error, maxBytes int) (string, error) {
	words, err := shard.OpenTokenizer(ctx, c, run.Data)
	if err != nil {
		return "", err
	}
	model, err := generate.New(generate.Config{Device: device, Model: run.Model, Params: params})
	if err != nil {
		return "", err
	}
	first := run.Data.EndOfText()
	if first == plan.NoToken {
		first = '\n'
	}
	tokens, err := model.Generate(ctx, generate.Request{
		Prompt: []int32{first}, Tokens: run.Train.SampleTokens,
		Sampling: generate.Sampling{Temperature: sampleTemperature, Seed: run.Train.Seed},
	})
	if err := errors.Join(err, model.Close()); err != nil {
		return "", err
	}
	return printable(words, run.Data, tokens, maxBytes), nil
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
