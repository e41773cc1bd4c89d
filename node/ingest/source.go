package ingest

import (
	"context"
	"errors"
	"fmt"

	"pnode/checkpoint"
	"pnode/node/config"
	"pnode/node/dataset"
	"pnode/node/weights"
	"pnode/pipeline/model"
	"pnode/planner/plan"
)

// Source says where a new run's text and weights come from.
type Source struct {
	config.Config
	Store *checkpoint.Store
	// OpenModel opens the weights in a folder.
	OpenModel func(ctx context.Context, dir string) (*weights.Model, error)
	// Notice gets lines for people.
	Notice func(string)

	config  model.Config   // of the preset or the weights
	weights *weights.Model // nil for a preset
}

// open finds what the run starts from; close closes it again.
func (s *Source) open(ctx context.Context) (err error) {
	if s.Init == "" {
		s.config, err = s.Model()
		return err
	}
	if s.weights, err = s.OpenModel(ctx, s.Init); err != nil {
		return fmt.Errorf("init: %w", err)
	}
	if s.LoRA != "" { // adapters go on being trained apart from the weights
		with, err := weights.WithAdapters(s.weights, s.LoRA)
		if err == nil {
			s.weights, err = with.Apart()
		}
		if err != nil {
			return fmt.Errorf("lora: %w", err)
		}
	}
	if s.config, err = s.Fit(s.weights.Config); err != nil {
		return errors.Join(err, s.close())
	}
	s.weights.Shorten(s.config.Context)
	return nil
}

func (s *Source) close() error {
	if s.weights == nil {
		return nil
	}
	return s.weights.Close()
}

// InitialModel returns the configuration of the model that a run of s trains. It needs no Store.
func (s Source) InitialModel(ctx context.Context) (model.Config, error) {
	if err := s.open(ctx); err != nil {
		return model.Config{}, err
	}
	return s.config, s.close()
}

// Spec brings text and weights into chunks and returns the specification of the run.
func (s Source) Spec(ctx context.Context, run plan.RunID) (spec plan.RunSpec, err error) {
	if err := s.open(ctx); err != nil {
		return spec, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	data, err := s.storeText(ctx)
	if err != nil {
		return spec, err
	}
	if vocab := data.Vocab(); s.weights == nil && vocab > s.config.Vocab {
		s.Notice(fmt.Sprintf("the data's vocabulary of %d tokens takes the place of the %d of %s", vocab, s.config.Vocab, s.Preset))
		s.config.Vocab = vocab
	}
	if spec, err = s.RunSpec(s.config, data, run); err != nil {
		return spec, err
	}
	if err := checkText(spec); err != nil {
		return spec, err
	}
	if s.weights != nil {
		spec.Init, err = s.storeWeights(ctx)
	}
	return spec, err
}

// checkText refuses a text that does not fit the model before the run exists.
func checkText(spec plan.RunSpec) error {
	if spec.Train.DocumentMask && spec.Data.EndOfText() == plan.NoToken {
		return fmt.Errorf("%w: document_mask is true, but no end-of-text token tells the documents of the data apart: name token shards that have one "+
			"(`pnode tokenize --end-of-text`) with --data, or leave it out", config.ErrInvalid)
	}
	_, err := NewSampler(spec)
	return err
}

// NewSampler returns which samples the steps of a run train on. It needs none of the text.
func NewSampler(spec plan.RunSpec) (*dataset.Sampler, error) {
	return dataset.NewSampler(spec.Data, window(spec))
}

func window(spec plan.RunSpec) dataset.Window {
	return dataset.Window{
		Seed: spec.Train.Seed, Context: spec.Model.Context,
		StepRows: spec.Train.Micros * spec.Train.MicroBatch, Vocab: spec.Model.Vocab,
	}
}
