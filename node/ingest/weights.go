package ingest

import (
	"context"
	"fmt"
	"time"

	"pnode/checkpoint"
	"pnode/planner/plan"
)

const (
	// InitialPin names what keeps the weights that a run starts from until its first checkpoint.
	InitialPin = "init"
	// filesPin keeps the files that came with the weights.
	filesPin = "files"
	// noticeEvery is the time between two lines for people about weights that are stored.
	noticeEvery = 5 * time.Second
)

// storeWeights brings the weights into chunks.
func (s *Source) storeWeights(ctx context.Context) (*plan.InitSpec, error) {
	writing := s.Store.Begin()
	defer writing.Abort()
	last := time.Now()
	spec, err := s.weights.Store(ctx, writing.PutChunk, func(done, total int) {
		if now := time.Now(); now.Sub(last) >= noticeEvery && done < total {
			last = now
			s.Notice(fmt.Sprintf("taking the weights in: layer %d of %d", done, total))
		}
	})
	if err != nil {
		return nil, err
	}
	if err := pinInit(s.Store, spec, true); err != nil {
		return nil, err
	}
	s.Notice(fmt.Sprintf("starting from %s, %.1f M parameters", s.weights.From, float64(s.weights.Config.Params())/1e6))
	for _, warning := range s.weights.Warnings {
		s.Notice("warning: " + warning)
	}
	return &spec, nil
}

// pinInit keeps the files, and the layers where no checkpoint replaces them yet.
func pinInit(store *checkpoint.Store, spec plan.InitSpec, layers bool) error {
	if err := store.Pin(filesPin, plan.InitSpec{Files: spec.Files}.AllChunks()); err != nil || !layers {
		return err
	}
	return store.Pin(InitialPin, plan.InitSpec{Layers: spec.Layers}.AllChunks())
}
