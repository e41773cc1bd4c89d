package node

import (
	"context"
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"

	"pnode/kernels"
	"pnode/node/dataset/shard"
	"pnode/node/dataset/tokenizer"
	"pnode/pipeline"
	"pnode/pipeline/generate"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// sampleTemperature is a little below 1: text that shows what the model knows.
const sampleTemperature = 0.8

// sample has the model of the newest checkpoint write some text, from the beginning of a
// document or line. One that was trained on a device which computes nothing has none to write.
func (n *Node) sample(ctx context.Context, state consensus.State) (string, error) {
	run := *state.Run
	if run.Train.SampleTokens == 0 || n.progress.idle {
		return "", nil
	}
	params := func(layer int, dst []float32) error {
		bytes := make([]byte, pipeline.LayerStateBytes(run.Model, layer))
		if err := n.keeper.Read(ctx, state.Checkpoint.Layers[layer], bytes); err != nil {
			return err
		}
		copy(kernels.Float32Bytes(dst), pipeline.LayerParams(run.Model, layer, bytes))
		return nil
	}
	words, err := shard.OpenTokenizer(ctx, textChunks{n.store, n.keeper.Fetcher}, run.Data)
	if err != nil {
		return "", err
	}
	model, err := generate.New(generate.Config{Device: n.hardware.First(), Model: run.Model, Params: params})
	if err != nil {
		return "", err
	}
	tokens, err := model.Generate(ctx, generate.Request{
		Prompt: []int32{beginning(run.Data)}, Tokens: run.Train.SampleTokens,
		Sampling: generate.Sampling{Temperature: sampleTemperature, Seed: run.Train.Seed},
	})
	if err := errors.Join(err, model.Close()); err != nil {
		return "", err
	}
	return printable(words, run.Data, tokens), nil
}

// beginning is the token before a sample: what ends a document, or else a line.
func beginning(d plan.DataSpec) int32 {
	if end := d.EndOfText(); end != plan.NoToken {
		return end
	}
	return '\n'
}

// printable turns tokens into text that a terminal can show; documents end with a line.
func printable(words tokenizer.Tokenizer, d plan.DataSpec, tokens []int32) string {
	var raw []byte
	for _, t := range tokens {
		if t == d.EndOfText() {
			raw = append(raw, '\n')
			continue
		}
		raw = words.Decode(raw, []int32{t})
	}
	raw = raw[:min(len(raw), consensus.MaxSampleBytes)] // a ? takes no more than what it stands for
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t', unicode.IsGraphic(r) && r != utf8.RuneError: // no control characters, of either set
			return r
		default:
			return '?'
		}
	}, strings.ToValidUTF8(string(raw), "?"))
}
