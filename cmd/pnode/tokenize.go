package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/spf13/cobra"

	"pnode/checkpoint"
	"pnode/node/dataset/shard"
	"pnode/node/dataset/source"
	"pnode/node/progress"
)

func (e environment) tokenizeCommand() *cobra.Command {
	var o shard.Options
	var name, endOfText string
	c := &cobra.Command{
		Use:   "tokenize --tokenizer DIR|FILE|bytes --out DIR PATH...",
		Short: "Make token shards out of text, for train --data",
		Long: `Turn text, jsonl and parquet files into a folder of token shards that "pnode train --data"
takes. Files packed as .gz or .zst are unpacked on the way; folders are searched, and globs.

A text file is one document unless --document-separator divides it; a line of .jsonl and a
row of .parquet is one, whose text stands in the field or column --field. Interrupted, the
same command goes on where it was.`,
		Example: `  pnode tokenize --tokenizer ~/gpt2 --out shards corpus/*.jsonl.zst
  pnode tokenize --tokenizer bytes --out shards --document-separator blank-line book.txt
  pnode train --data shards --preset gpt2-124m`,
		Args: usageArgs(cobra.MatchAll(atLeastOne("file or folder of text"), named)),
		RunE: func(c *cobra.Command, args []string) error {
			if name == "" || o.Out == "" {
				return usageError{c.CommandPath(), errors.New("--tokenizer and --out are required")}
			}
			chosen, err := shard.Choose(name, endOfText)
			if errors.Is(err, fs.ErrNotExist) {
				return usageError{c.CommandPath(), err}
			}
			if err != nil {
				return err
			}
			o.Paths, o.Tokenizer, o.EndOfText, o.TokenizerFiles = args, chosen.Tokenizer, chosen.EndOfText, chosen.Files
			o.Progress = progress.Tokenizing(e.stderr, isTerminal(e.stderr), time.Now)
			o.Lock = checkpoint.Lock
			m, err := shard.Make(c.Context(), o)
			if errors.Is(err, context.Canceled) {
				return errors.New("interrupted before it was done; the same command goes on behind the last shard that was finished")
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(e.stdout, "%s: documents %d, tokens %d (of %d bytes), shards %d, vocabulary %d; train on it with\n  pnode train --data %s\n",
				o.Out, m.Documents, m.Tokens, m.TokenBytes, len(m.Shards), m.Vocab, o.Out)
			return nil
		},
	}
	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&name, "tokenizer", "", "`DIR|FILE` of a tokenizer (tokenizer.json, or vocab.json and merges.txt), or bytes")
	f.StringVar(&o.Out, "out", "", "`FOLDER` to make")
	f.StringVar(&o.Source.Field, "field", "text", "`NAME` of the jsonl field or parquet column with the text")
	f.StringVar(&o.Source.Separator, "document-separator", "", "`LINE` between the documents of a text file, or "+source.BlankLine)
	f.StringVar(&endOfText, "end-of-text", "", "special `TOKEN` behind every document (default the tokenizer's own)")
	f.BoolVar(&o.Source.SkipMalformed, "skip-malformed", false, "leave out and count what is malformed")
	f.Int64Var(&o.ShardTokens, "shard-tokens", shard.DefaultShardTokens, "tokens at which a shard ends, with its last document")
	addThreads(f, &o.Threads)
	return c
}
