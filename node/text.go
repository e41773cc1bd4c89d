package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"pnode/checkpoint"
	"pnode/node/checkpointer"
	"pnode/node/config"
	"pnode/node/dataset"
	"pnode/node/dataset/shard"
	"pnode/node/dataset/tokenizer"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

const (
	// heldOutPermille of the text's end is kept for evaluation.
	heldOutPermille = 50
	// textPin keeps the run's text from being swept.
	textPin = "text"
	// goSourceLimit is how much of the Go toolchain's source is used: enough for a first run.
	goSourceLimit = 16 * config.MB
	// wholeTextBytes is the size up to which a text is here as a whole before training.
	wholeTextBytes = 1 << 30
	// mirrorRetry is how long to wait when no member has the next chunks of the text.
	mirrorRetry = 30 * time.Second
	// textPatience bounds the wait for others to give this node the run's text.
	textPatience = time.Minute
)

// textSource is where a new run's text comes from, and for which model.
type textSource struct {
	config.Config
	from origin
	dir  string // for what is made on the way
}

// importText brings the text or the token shards named by the settings, or the Go
// toolchain's source, into chunks.
func importText(ctx context.Context, store *checkpoint.Store, source textSource, out Output) (plan.DataSpec, error) {
	writing := store.Begin()
	defer writing.Abort()
	bring, err := source.way(out)
	if err != nil {
		return plan.DataSpec{}, err
	}
	spec, notice, err := bring(ctx, source, writing.PutChunk)
	if err != nil {
		return plan.DataSpec{}, err
	}
	if err := store.Pin(textPin, spec.AllChunks()); err != nil {
		return plan.DataSpec{}, err
	}
	spec.HeldOutPermille = heldOutPermille
	out.Notice("training on " + notice)
	return spec, nil
}

// put stores a chunk.
type put = func([]byte) (plan.Hash, error)

// way is how the text gets into chunks: token shards as they are; text as bytes, or through
// the tokenizer of given weights.
func (s textSource) way(out Output) (func(context.Context, textSource, put) (plan.DataSpec, string, error), error) {
	for _, path := range s.Data {
		if err := shard.CheckFinished(path); err != nil {
			return nil, fmt.Errorf("node: data: %w", err)
		}
	}
	m := s.from.weights
	switch {
	case slices.ContainsFunc(s.Data, shard.IsFolder):
		return importShards, nil
	case m == nil || m.Words != nil && tokenizer.IsBytes(m.Words):
		return importFiles, nil
	case m.Words == nil:
		return nil, fmt.Errorf("node: %s: %w: name token shards with --data, made by `pnode tokenize` with the model's tokenizer", m.From, m.NoWords)
	case len(s.Data) == 0:
		return nil, fmt.Errorf("node: %s has a tokenizer of its own: name text or token shards with --data", m.From)
	}
	out.Notice("turning the text into the model's tokens; `pnode tokenize` does so once for several runs")
	return importTokenized, nil
}

func importFiles(ctx context.Context, cfg textSource, put put) (plan.DataSpec, string, error) {
	paths, what, limit := cfg.Data, "the text", cfg.DataLimit
	if len(paths) == 0 {
		tree, err := dataset.GoSourceTree()
		if err != nil {
			return plan.DataSpec{}, "", fmt.Errorf("%w: name files or folders of UTF-8 text with --data", err)
		}
		paths, what = []string{tree}, "the Go toolchain's source (no --data given)"
		if limit == 0 {
			limit = goSourceLimit
		}
	}
	corpus, err := dataset.Collect(paths, dataset.Options{LimitBytes: int64(limit)})
	if err != nil {
		return plan.DataSpec{}, "", err
	}
	spec, err := corpus.Store(ctx, put)
	r := corpus.Report
	notice := fmt.Sprintf("%s: %s, %v", what, plan.Count(r.Files, "file"), textSize(r.Bytes))
	if r.Truncated {
		notice += fmt.Sprintf(", cut at --data-limit %v", limit)
	}
	if r.Skipped > 0 {
		notice += fmt.Sprintf(", %s skipped that held no text", plan.Count(r.Skipped, "file"))
	}
	return spec, notice, err
}

// errMixedData: token shards beside something else.
var errMixedData = errors.New("token shards and text in one run")

func importShards(ctx context.Context, cfg textSource, put put) (plan.DataSpec, string, error) {
	var folders []shard.Folder
	for _, path := range cfg.Data {
		if !shard.IsFolder(path) {
			return plan.DataSpec{}, "", fmt.Errorf("%w: %s holds no %s; make shards of all text with `pnode tokenize`", errMixedData, path, shard.ManifestFile)
		}
		f, err := shard.Open(path)
		if err != nil {
			return plan.DataSpec{}, "", err
		}
		if err := cfg.from.speaks(f); err != nil {
			return plan.DataSpec{}, "", err
		}
		folders = append(folders, f)
	}
	limit := int64(cfg.DataLimit)
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

// textSize is a size for people: 0.0 MB says nothing.
func textSize(bytes int64) string {
	if bytes < 1e3 {
		return plan.Count(int(bytes), "byte")
	}
	if bytes < 1e5 {
		return fmt.Sprintf("%.1f kB", float64(bytes)/1e3)
	}
	return fmt.Sprintf("%.1f MB", float64(bytes)/1e6)
}

// checkText refuses a text that does not fit the model before the run exists.
func checkText(spec plan.RunSpec) error {
	if spec.Train.DocumentMask && spec.Data.EndOfText() == plan.NoToken {
		return fmt.Errorf("%w: document_mask is true, but no end-of-text token tells the documents of the data apart: name token shards that have one "+
			"(`pnode tokenize --end-of-text`) with --data, or leave it out", config.ErrInvalid)
	}
	_, err := dataset.NewSampler(spec.Data, window(spec))
	return err
}

func window(spec plan.RunSpec) dataset.Window {
	return dataset.Window{
		Seed: spec.Train.Seed, Context: spec.Model.Context,
		StepRows: spec.Train.Micros * spec.Train.MicroBatch, Vocab: spec.Model.Vocab,
	}
}

// textChunks reads the run's text here, and what is missing or damaged from other members.
type textChunks struct {
	store *checkpoint.Store
	fetch checkpointer.Fetcher
}

// Chunk implements dataset.ChunkSource.
func (t textChunks) Chunk(ctx context.Context, h plan.Hash) ([]byte, error) {
	chunk, err := t.store.Chunk(h)
	if !errors.Is(err, checkpoint.ErrNotFound) && !errors.Is(err, checkpoint.ErrCorrupt) {
		return chunk, err
	}
	if err := t.fetch.Ensure(ctx, []plan.Hash{h}, nil); err != nil {
		return nil, err
	}
	return t.store.Chunk(h)
}

// openText opens the run's text. Every node keeps all of it: then the run does not need the
// one that brought it. A text of up to wholeTextBytes is fetched before the node trains, a
// larger one meanwhile (mirrorText).
func (n *Node) openText(ctx context.Context, state consensus.State) (*dataset.Dataset, error) {
	spec := *state.Run
	data, err := dataset.Open(textChunks{n.store, n.keeper.Fetcher}, spec.Data, window(spec))
	if err == nil {
		err = n.store.Pin(textPin, spec.Data.AllChunks())
	}
	if err == nil && spec.Data.SizeBytes <= wholeTextBytes {
		err = n.keeper.Fetcher.Await(ctx, spec.Data.AllChunks(), textPatience)
	}
	if err != nil {
		return nil, fmt.Errorf("node: the run's text: %w", err)
	}
	return data, nil
}

// mirrorText fetches what is missing here of a large text, in the order in which the steps
// after the given one want it. Steps do not wait for it: they fetch what they lack
// themselves.
func (n *Node) mirrorText(ctx context.Context, after plan.Step) {
	textChunks{n.store, n.keeper.Fetcher}.mirror(ctx, n.data.ChunkOrder(after+1), n.log)
}

// mirror fetches what is missing here until all is here, the disk is full or ctx ends.
func (t textChunks) mirror(ctx context.Context, order []plan.Hash, log *slog.Logger) {
	missing := t.fetch.Missing(order)
	for len(missing) > 0 {
		batch := missing[:min(len(missing), checkpointer.FetchBatch)]
		err := t.fetch.Ensure(ctx, batch, nil)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, checkpoint.ErrDiskFull):
			log.Warn("no room for a copy of the text: it is fetched again when it is needed", "cause", err)
			return
		case err == nil:
			missing = missing[len(batch):]
			continue
		}
		log.Debug("copy the text", "cause", err)
		select {
		case <-ctx.Done():
		case <-time.After(mirrorRetry):
		}
	}
}
