package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"pnode/checkpoint"
	"pnode/node/dataset"
	"pnode/planner/plan"
)

const (
	// wholeTextBytes is the size up to which all of a text is here before training.
	wholeTextBytes = 1 << 30
	// textPatience is how long a node waits for others to give it the run's text.
	textPatience = time.Minute
	// mirrorBatch chunks are fetched at a time, mirrorRetry after nobody had the last ones.
	mirrorBatch = 16
	mirrorRetry = 30 * time.Second
)

// Chunks reads the run's chunks here, and from other nodes what is missing or damaged. It
// implements dataset.ChunkSource.
type Chunks struct {
	Store *checkpoint.Store
	// Fetch brings chunks that are not here from other nodes. For as long as patience it tries
	// again while somebody is there who may have them.
	Fetch func(ctx context.Context, hashes []plan.Hash, patience time.Duration) error
}

// Chunk implements dataset.ChunkSource.
func (c Chunks) Chunk(ctx context.Context, h plan.Hash) ([]byte, error) {
	chunk, err := c.Store.Chunk(h)
	if !errors.Is(err, checkpoint.ErrNotFound) && !errors.Is(err, checkpoint.ErrCorrupt) {
		return chunk, err
	}
	if err := c.Fetch(ctx, []plan.Hash{h}, 0); err != nil {
		return nil, err
	}
	return c.Store.Chunk(h)
}

// OpenStored opens a run's text where it lies.
func OpenStored(source dataset.ChunkSource, run plan.RunSpec) (*dataset.Dataset, error) {
	data, err := dataset.Open(source, run.Data, window(run))
	if err != nil {
		return nil, fmt.Errorf("ingest: the run's text: %w", err)
	}
	return data, nil
}

// OpenText opens the run's text. Every node keeps all of it, so that the run does not need the
// node that brought it. A text of at most wholeTextBytes is fetched before the call returns; a
// larger one is Mirror's.
func (c Chunks) OpenText(ctx context.Context, run plan.RunSpec) (*dataset.Dataset, error) {
	data, err := dataset.Open(c, run.Data, window(run))
	if err == nil {
		err = c.Store.Pin(textPin, run.Data.AllChunks())
	}
	if err == nil && run.Data.SizeBytes <= wholeTextBytes {
		err = c.room(run.Data)
	}
	if err == nil && run.Data.SizeBytes <= wholeTextBytes {
		err = c.Fetch(ctx, run.Data.AllChunks(), textPatience)
	}
	if err != nil {
		return nil, fmt.Errorf("ingest: the run's text: %w", err)
	}
	return data, nil
}

// room returns an error that wraps checkpoint.ErrDiskFull unless what is missing here of a text fits: it says what all of it takes.
func (c Chunks) room(data plan.DataSpec) error {
	lacks := int64(0)
	for i, h := range data.Chunks {
		if !c.Store.HasChunk(h) {
			lacks += min(checkpoint.ChunkBytes, data.SizeBytes-int64(i)*checkpoint.ChunkBytes)
		}
	}
	if lacks <= 0 {
		return nil
	}
	return c.Store.Fits(lacks, 0)
}

// OpenInitial brings the files of the model that the run started from here, so that every node
// can turn tokens into text and export. Layers are fetched when a stage needs them; started
// says that a checkpoint has replaced them.
func (c Chunks) OpenInitial(ctx context.Context, spec *plan.InitSpec, started bool) error {
	if spec == nil {
		return nil
	}
	err := pinInit(c.Store, *spec, !started)
	if err == nil {
		err = c.Fetch(ctx, plan.InitSpec{Files: spec.Files}.AllChunks(), 0)
	}
	if err != nil {
		return fmt.Errorf("ingest: the files of the run's model: %w", err)
	}
	return nil
}

// Mirror fetches what is missing here, in the given order, until all is here, the disk is full
// or ctx ends. Steps do not wait for it: they fetch what they lack themselves.
func (c Chunks) Mirror(ctx context.Context, order []plan.Hash, log *slog.Logger) {
	for len(order) > 0 {
		batch := order[:min(len(order), mirrorBatch)]
		err := c.Fetch(ctx, batch, 0)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, checkpoint.ErrDiskFull):
			log.Warn("no room for a copy of the text: it is fetched again when it is needed", "cause", err)
			return
		case err == nil:
			order = order[len(batch):]
			continue
		}
		log.Debug("copy the text", "cause", err)
		select {
		case <-ctx.Done():
		case <-time.After(mirrorRetry):
		}
	}
}
