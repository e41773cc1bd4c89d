package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"pnode/node/config"
	"pnode/node/dataset"
	"pnode/node/dataset/corpus"
	"pnode/node/dataset/shard"
	"pnode/node/dataset/source"
	"pnode/node/dataset/synthetic"
	"pnode/node/dataset/tokenizer"
	"pnode/planner/plan"
)

const (
	// heldOutPermille of the text's end is kept for evaluation.
	heldOutPermille = 50
	// textPin keeps the run's text from being swept.
	textPin = "text"
	// goSourceLimit bounds what is read of the Go toolchain's source: enough for a first run.
	goSourceLimit = 16 * config.MB
)

// errMixedData marks token shards and text in one run.
var errMixedData = errors.New("token shards and text in one run")

// put stores a chunk.
type put = func([]byte) (plan.Hash, error)

// storeText brings the text or the token shards named by the settings, or a text that needs no files of the user's,
// into chunks: token shards as they are; text as bytes, or in the tokens of given weights.
func (s *Source) storeText(ctx context.Context) (plan.DataSpec, error) {
	for _, path := range s.Data {
		if err := shard.CheckFinished(path); err != nil {
			return plan.DataSpec{}, fmt.Errorf("ingest: data: %w", err)
		}
	}
	writing := s.Store.Begin()
	defer writing.Abort()
	store, shards := s.storeBytes, slices.ContainsFunc(s.Data, shard.IsFolder)
	switch m := s.weights; {
	case shards:
		store = s.storeShards
	case m == nil || m.Words != nil && tokenizer.IsBytes(m.Words):
	case m.Words == nil:
		return plan.DataSpec{}, fmt.Errorf("ingest: %s: %w: name token shards with --data, made by `pnode tokenize` with the model's tokenizer", m.From, m.NoWords)
	case len(s.Data) == 0:
		return plan.DataSpec{}, fmt.Errorf("ingest: %s has a tokenizer of its own: name text or token shards with --data", m.From)
	default:
		store = s.storeTokenized
	}
	if s.Column != "" && (shards || len(s.Data) == 0 || source.LacksColumn(s.Data, s.documents())) {
		s.Notice(fmt.Sprintf("--column %s is not used: no file of the data has such a column", s.Column))
	}
	spec, notice, err := store(ctx, writing.PutChunk)
	if err != nil {
		return plan.DataSpec{}, err
	}
	if err := s.Store.Pin(textPin, spec.AllChunks()); err != nil {
		return plan.DataSpec{}, err
	}
	spec.HeldOutPermille = heldOutPermille
	s.Notice("training on " + notice)
	return spec, nil
}

func (s *Source) storeBytes(ctx context.Context, put put) (plan.DataSpec, string, error) {
	paths, what, limit := s.Data, "the text", s.DataLimit
	if len(paths) == 0 {
		tree, err := corpus.GoSourceTree()
		if errors.Is(err, corpus.ErrNoGo) {
			return s.storeSynthetic(ctx, put)
		}
		if err != nil {
			return plan.DataSpec{}, "", err
		}
		paths, what = []string{tree}, "the Go toolchain's source (no --data given)"
		if limit == 0 {
			limit = goSourceLimit
		}
	}
	o := corpus.Options{Source: s.documents(), LimitBytes: int64(limit), Progress: s.reading()}
	if len(s.Data) == 0 {
		o.Source.Plain = true // a tree of source has tables for its tests
	}
	text, err := corpus.Find(paths, o)
	if err != nil {
		return plan.DataSpec{}, "", err
	}
	spec, r, err := text.Store(ctx, put)
	notice := fmt.Sprintf("%s: %s, %v", what, plan.Count(r.Files, "file"), textSize(r.Bytes))
	if r.Tables > 0 {
		notice = fmt.Sprintf("%s of %s: %s in column %q, %v", what, plan.Count(r.Files, "file"), plan.Count(int(r.Documents), "document"), o.Source.TextColumn(), textSize(r.Bytes))
	}
	if r.Truncated {
		notice += fmt.Sprintf(", cut at --data-limit %v", limit)
	}
	if r.Irregular > 0 {
		notice += fmt.Sprintf(", %s not followed", plan.Count(r.Irregular, "link"))
	}
	return spec, notice + leftOut(r.Skipped), err
}

// documents returns how documents are read out of files.
func (s *Source) documents() source.Options {
	return source.Options{Column: s.Column, SkipMalformed: s.SkipMalformed}
}

// leftOut says for people what of the data is not in the text.
func leftOut(skipped source.Skipped) string {
	if text := skipped.String(); text != "" {
		return "; left out: " + text
	}
	return ""
}

// reading returns a function that tells people how far the data is read, where that takes long.
func (s *Source) reading() func(read, total int64) {
	last := time.Now()
	return func(read, total int64) {
		if now := time.Now(); now.Sub(last) >= noticeEvery && read < total {
			last = now
			s.Notice(fmt.Sprintf("reading the data: %v of %v", textSize(read), textSize(total)))
		}
	}
}

// storeSynthetic writes a text of this program's own: `pnode train` alone works on any machine.
func (s *Source) storeSynthetic(ctx context.Context, put put) (plan.DataSpec, string, error) {
	size := synthetic.Bytes
	if s.DataLimit > 0 {
		size = int(min(s.DataLimit, synthetic.Bytes))
	}
	chunks, stored, err := dataset.StoreChunks(ctx, put, func(w io.Writer) error { return synthetic.Write(w, size) })
	notice := fmt.Sprintf("%s, written for this run (no --data given, no Go source here): %v; no model gets below a held-out loss of %.2f",
		synthetic.What, textSize(stored), synthetic.Floor())
	return plan.DataSpec{Chunks: chunks, SizeBytes: stored}, notice, err
}

func (s *Source) storeShards(ctx context.Context, put put) (plan.DataSpec, string, error) {
	var folders []shard.Folder
	for _, path := range s.Data {
		if !shard.IsFolder(path) {
			return plan.DataSpec{}, "", fmt.Errorf("%w: %s holds no %s; make shards of all text with `pnode tokenize`", errMixedData, path, shard.ManifestFile)
		}
		f, err := shard.Open(path)
		if err == nil {
			err = s.checkTokens(f)
		}
		if err != nil {
			return plan.DataSpec{}, "", err
		}
		folders = append(folders, f)
	}
	limit := int64(s.DataLimit)
	if limit == 0 {
		limit = dataset.MaxBytes + 1 // one more is refused
	}
	spec, err := shard.Store(ctx, folders, limit, put)
	if err != nil {
		return plan.DataSpec{}, "", err
	}
	return spec, fmt.Sprintf("%s of %s in token shards, vocabulary %d", plan.Count(int(spec.TokenCount()), "token"),
		plan.Count(int(spec.Tokens.Documents), "document"), spec.Vocab()), nil
}

// textSize prints bytes for people: 0.0 MB says nothing.
func textSize(bytes int64) string {
	switch {
	case bytes < 1e3:
		return plan.Count(int(bytes), "byte")
	case bytes < 1e5:
		return fmt.Sprintf("%.1f kB", float64(bytes)/1e3)
	default:
		return fmt.Sprintf("%.1f MB", float64(bytes)/1e6)
	}
}
