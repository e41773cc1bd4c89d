package weights

import (
	"context"
	"fmt"

	"pnode/node/dataset"
	"pnode/node/dataset/shard"
	"pnode/node/dataset/tokenizer"
	"pnode/planner/plan"
)

// OfRun opens the newest whole checkpoint of a run on a shelf, which the model closes; it
// stays open on an error. The error wraps ErrNoModel when there is no such checkpoint.
func OfRun(ctx context.Context, shelf Shelf, spec plan.RunSpec) (*Model, error) {
	manifest, warnings, err := shelf.newest(ctx, spec)
	if err != nil {
		return nil, err
	}
	m, err := OfCheckpoint(ctx, shelf, spec, manifest.Step, stored(manifest), shelf.Close)
	if err == nil {
		m.Warnings = warnings
	}
	return m, err
}

// OfCheckpoint opens the checkpoint of a step of a run. layers are those of the run's model in order, and in chunks of a
// source, which closed closes with the model; it is not called on an error.
func OfCheckpoint(ctx context.Context, src dataset.ChunkSource, spec plan.RunSpec, step plan.Step, layers []plan.LayerInit, closed func() error) (_ *Model, err error) {
	m := &Model{
		Step: step,
		From: fmt.Sprintf("step %d of run %s", step, spec.Run), Config: spec.Model.Base(),
		DType: mergedType, DocumentEnd: plan.NoToken, layer: reader(src, layers), close: closed,
	}
	if spec.Train.DocumentMask {
		m.DocumentEnd = spec.Data.EndOfText()
	}
	if spec.Model.LoRA.On() {
		m.adapted = &adapted{config: spec.Model, layer: m.layer}
		m.layer = m.adapted.merged
	}
	if m.Files, err = runFiles(ctx, src, spec); err != nil {
		return nil, err
	}
	m.Words, m.NoWords = runWords(ctx, src, spec, m.Files)
	return m, nil
}

// runFiles returns the files of the model that the run started from, or those of its data's
// tokenizer.
func runFiles(ctx context.Context, src dataset.ChunkSource, spec plan.RunSpec) (map[string][]byte, error) {
	switch {
	case spec.Init != nil && len(spec.Init.Files) > 0:
		return dataset.ReadFiles(ctx, src, spec.Init.Files)
	case spec.Data.Tokens != nil && len(spec.Data.Tokens.Files) > 0:
		files, err := dataset.ReadFiles(ctx, src, spec.Data.Tokens.Files)
		if err != nil {
			return nil, err
		}
		describe(files, spec.Data.EndOfText())
		return files, nil
	case shard.IsBytes(spec.Data):
		return tokenizer.Bytes{}.Files(), nil
	}
	return map[string][]byte{}, nil
}

// describe adds what other programs go by where a tokenizer's files alone have come: which
// class they are for, and the token that ends a text.
func describe(files map[string][]byte, end int32) {
	class := "GPT2Tokenizer" // vocab.json and merges.txt
	if files["tokenizer.json"] != nil {
		class = "PreTrainedTokenizerFast"
	}
	if files["tokenizer_config.json"] == nil {
		files["tokenizer_config.json"] = fmt.Appendf(nil, "{\n  \"tokenizer_class\": %q\n}\n", class)
	}
	if end != plan.NoToken {
		files[generationFile] = fmt.Appendf(nil, "{\n  \"bos_token_id\": %d,\n  \"eos_token_id\": %d\n}\n", end, end)
	}
}

// runWords returns the tokenizer of the model that the run started from, or that of its data.
func runWords(ctx context.Context, src dataset.ChunkSource, spec plan.RunSpec, files map[string][]byte) (*Words, error) {
	if spec.Init != nil {
		return wordsOf(files, spec.Model.Vocab)
	}
	t, err := shard.OpenTokenizer(ctx, src, spec.Data)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoWords, err)
	}
	w := &Words{Tokenizer: t}
	if end := spec.Data.EndOfText(); end != plan.NoToken {
		w.Ends = []int32{end}
	}
	return w, nil
}
