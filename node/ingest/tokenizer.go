package ingest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"pnode/node/dataset/shard"
	"pnode/node/dataset/source"
	"pnode/node/dataset/tokenizer"
	"pnode/planner/plan"
)

// errOtherTokens marks shards that the model would read as other text.
var errOtherTokens = errors.New("made with another tokenizer than the model's")

// checkTokens refuses token shards that are not in the tokens of given weights.
func (s *Source) checkTokens(f shard.Folder) error {
	if s.weights == nil || s.weights.Words == nil {
		return nil
	}
	words := s.weights.Words
	if made := f.Manifest.Tokenizer; made == words.Hash() || tokenizer.IsBytes(words) && made == (tokenizer.Bytes{}).Hash() {
		return nil
	}
	return fmt.Errorf("ingest: %w: the token shards in %s; tokenize the text with `pnode tokenize --tokenizer` and the folder of the model", errOtherTokens, f.Dir)
}

// storeTokenized makes token shards of text in the tokens of given weights, for this run alone.
func (s *Source) storeTokenized(ctx context.Context, put put) (spec plan.DataSpec, notice string, err error) {
	s.Notice("turning the text into the model's tokens; `pnode tokenize` does so once for several runs")
	work, err := os.MkdirTemp(s.Dir, "tokens-")
	if err != nil {
		return spec, "", fmt.Errorf("ingest: tokenize the text: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	o, err := s.shardOptions(filepath.Join(work, "tokenizer"))
	if err != nil {
		return spec, "", fmt.Errorf("ingest: tokenize the text: %w", err)
	}
	o.Out, o.Paths, o.Threads = filepath.Join(work, "shards"), s.Data, s.Threads
	o.Source = s.documents()
	var skipped source.Skipped
	reading := s.reading()
	o.Progress = func(p shard.Progress) {
		skipped = p.Skipped
		reading(p.ReadBytes, p.TotalBytes)
	}
	if _, err := shard.Make(ctx, o); err != nil {
		return spec, "", err
	}
	tokenized := *s
	tokenized.Data = []string{o.Out}
	spec, notice, err = tokenized.storeShards(ctx, put)
	return spec, notice + leftOut(skipped), err
}

// shardOptions returns options for the weights' tokenizer, whose files it writes to dir.
func (s *Source) shardOptions(dir string) (shard.Options, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return shard.Options{}, err
	}
	for _, name := range tokenizer.Files {
		if text, ok := s.weights.Files[name]; ok {
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
