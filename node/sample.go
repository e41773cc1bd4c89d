package node

import (
	"context"
	"errors"
	"strings"
	"unicode/utf8"

	"pnode/pipeline"
	"pnode/pipeline/generate"
	"pnode/swarm/consensus"
)

// sampleTemperature is a little below 1: text that shows what the model knows.
const sampleTemperature = 0.8

// sample has the model of the newest checkpoint write some text, from a line's beginning.
func (n *Node) sample(ctx context.Context, state consensus.State) (string, error) {
	run := *state.Run
	if run.Train.SampleTokens == 0 {
		return "", nil
	}
	params := func(layer int) ([]byte, error) {
		bytes := make([]byte, pipeline.LayerStateBytes(run.Model, layer))
		if err := n.keeper.read(ctx, state.Checkpoint.Layers[layer], bytes); err != nil {
			return nil, err
		}
		return pipeline.LayerParams(run.Model, layer, bytes), nil
	}
	model, err := generate.New(generate.Config{Device: n.device, Model: run.Model, Params: params})
	if err != nil {
		return "", err
	}
	tokens, err := model.Generate(ctx, generate.Request{
		Prompt: []int32{'\n'}, Tokens: run.Train.SampleTokens,
		Sampling: generate.Sampling{Temperature: sampleTemperature, Seed: run.Train.Seed},
	})
	if err := errors.Join(err, model.Close()); err != nil {
		return "", err
	}
	return printable(tokens), nil
}

// printable turns byte tokens into text that a terminal can show.
func printable(tokens []int32) string {
	raw := make([]byte, len(tokens))
	for i, t := range tokens {
		raw[i] = byte(t)
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t', r >= ' ' && r != 0x7f && r != utf8.RuneError:
			return r
		default:
			return '?'
		}
	}, strings.ToValidUTF8(string(raw), "?"))
}
