package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"pnode/node/dataset/shard"
	"pnode/node/dataset/tokenizer"
	"pnode/planner/plan"
)

// errOtherTokens: shards that a model would read as other words.
var errOtherTokens = errors.New("made with another tokenizer than the model's")

// speaks refuses token shards that are not in the tokens of given weights.
func (from origin) speaks(f shard.Folder) error {
	if from.weights == nil || from.weights.Words == nil {
		return nil
	}
	words := from.weights.Words
	if made := f.Manifest.Tokenizer; made == words.Hash() || tokenizer.IsBytes(words) && made == (tokenizer.Bytes{}).Hash() {
		return nil
	}
	return fmt.Errorf("node: %w: the token shards in %s; tokenize the text with `pnode tokenize --tokenizer` and the folder of the model", errOtherTokens, f.Dir)
}

// importTokenized makes token shards of text in the tokens of given weights, for this run
// alone.
func importTokenized(ctx context.Context, source textSource, put put) (spec plan.DataSpec, notice string, err error) {
	work, err := os.MkdirTemp(source.dir, "tokens-")
	if err != nil {
		return spec, "", fmt.Errorf("node: tokenize the text: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	o, err := source.from.shardOptions(filepath.Join(work, "tokenizer"))
	if err != nil {
		return spec, "", fmt.Errorf("node: tokenize the text: %w", err)
	}
	o.Out, o.Paths, o.Threads = filepath.Join(work, "shards"), source.Data, source.Threads
	if _, err := shard.Make(ctx, o); err != nil {
		return spec, "", err
	}
	source.Data = []string{o.Out}
	return importShards(ctx, source, put)
}

// shardOptions are those of the weights' tokenizer, whose files are written to dir.
func (from origin) shardOptions(dir string) (shard.Options, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return shard.Options{}, err
	}
	for _, name := range tokenizer.Files {
		if text, ok := from.weights.Files[name]; ok {
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
				return shard.Options{}, err
			}
		}
	}
	chosen, err := shard.Choose(dir, "")
	if err != nil {
		return shard.Options{}, fmt.Errorf("%w; make token shards with `pnode tokenize` first", err)
	}
	return shard.Options{Tokenizer: chosen.Tokenizer, EndOfText: chosen.EndOfText, TokenizerFiles: chosen.Files}, nil
}
