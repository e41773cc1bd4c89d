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
	"pnode/node/plain"
	"pnode/node/progress"
	"pnode/planner/plan"
)

func (e environment) tokenizeCommand() *cobra.Command {
	var o shard.Options
	var name, endOfText string
	c := &cobra.Command{
		Use:   "tokenize --tokenizer DIR|FILE|bytes --out DIR PATH...",
		Short: "Make token shards out of text, for train --data",
		Long: `Turn text, JSON Lines, CSV and Parquet files into a folder of token shards for "pnode train --data".
PATH is a file, a folder or a pattern. Formats are told by what is in a file; gzip and zstd are
unpacked.

A text file is one document, unless --document-separator divides it. A line of JSON or a row is one
document, with its text in --column. After an interrupt the same command continues where it stopped.`,
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
			if c.Flags().Changed("column") && source.LacksColumn(args, o.Source) {
				fmt.Fprintf(e.stderr, "--column %s is not used: no file of the data has such a column\n", o.Source.Column)
			}
			show := progress.Tokenizing(e.stderr, isTerminal(e.stderr), time.Now)
			var skipped source.Skipped
			o.Progress = func(p shard.Progress) {
				skipped = p.Skipped
				show(p)
			}
			o.Lock = checkpoint.Lock
			m, err := shard.Make(c.Context(), o)
			if errors.Is(err, context.Canceled) {
				return errors.New("interrupted before it was done; the same command continues after the last finished shard")
			}
			if err != nil {
				return err
			}
			if text := skipped.String(); text != "" {
				fmt.Fprintf(e.stderr, "left out: %s\n", text)
			}
			fmt.Fprintf(e.stdout, "%s: %s tokens of %s in %s, vocabulary %s; train on it with\n  pnode train --data %s\n",
				o.Out, plan.Number(m.Tokens), plan.Count(int(m.Documents), "document"), plan.Count(len(m.Shards), "shard"), plan.Number(m.Vocab), plain.Quote(o.Out))
			return nil
		},
	}
	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&name, "tokenizer", "", "`DIR|FILE` of a tokenizer (tokenizer.json, or vocab.json with merges.txt), or the word bytes")
	f.StringVar(&o.Out, "out", "", "`FOLDER` to create")
	f.StringVar(&o.Source.Column, "column", source.DefaultColumn, "`NAME` of the column or field with the text")
	f.StringVar(&o.Source.Separator, "document-separator", "", "`LINE` between the documents of a text file, or "+source.BlankLine)
	f.StringVar(&endOfText, "end-of-text", "", "special `TOKEN` after every document (default the tokenizer's own)")
	f.BoolVar(&o.Source.SkipMalformed, "skip-malformed", false, "leave malformed documents out, however many; without it 1 in 100 of a file is left out at most")
	f.Int64Var(&o.ShardTokens, "shard-tokens", shard.DefaultShardTokens, "tokens after which a shard ends with its document")
	addThreads(f, &o.Threads)
	return c
}
