package textsamples

import (
	"context"
	"log/slog"

	"pnode/node/api"
	"pnode/node/plain"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

const (
	// Tokens is how many a text adds to its prompt: a few lines.
	Tokens = 120
	// MaxBytes bounds a text with its prompt: what the history keeps of a message.
	MaxBytes = 2 << 10
)

// Config says when the model writes, and how.
type Config struct {
	// Every is the number of steps from one text to the next; 0 is never.
	Every plan.Step
	// Spec returns the run's specification.
	Spec func() plan.RunSpec
	// Write returns what the model of a checkpoint writes, and "" where devices compute nothing.
	Write func(ctx context.Context, run plan.RunSpec, c consensus.Checkpoint) (string, error)
	// Publish gets a text as an event.
	Publish func(api.Event)
	Log     *slog.Logger
}

// Sampler has the model write every so many steps.
type Sampler struct {
	Config
	newest chan consensus.Checkpoint // holds one at most
}

// New returns a Sampler, which works while Run does.
func New(c Config) *Sampler {
	return &Sampler{Config: c, newest: make(chan consensus.Checkpoint, 1)}
}

// Whole takes in that a checkpoint is whole on this node. It does not block, and has one caller at a time.
func (s *Sampler) Whole(c consensus.Checkpoint) {
	select {
	case <-s.newest: // an older one
	default:
	}
	s.newest <- c
}

// Run has the model write until ctx ends: once for each multiple of Every that the checkpoints reach or pass. The last step's is left to the
// text at the end of the run, where there is one.
func (s *Sampler) Run(ctx context.Context) {
	if s.Every == 0 {
		return
	}
	done, failed := plan.Step(0), false
	for {
		var c consensus.Checkpoint
		select {
		case c = <-s.newest:
		case <-ctx.Done():
			return
		}
		run := s.Spec()
		last := c.Step == run.Train.Steps && run.Train.SampleTokens > 0
		if reached := c.Step / s.Every; last || reached == done {
			continue
		}
		text, err := s.Write(ctx, run, c)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if !failed { // the next ones fail alike
				s.Log.Warn("the model has written no sample; it is tried again at later steps", "step", c.Step, "cause", plain.Text(err))
			}
			failed = true
			continue
		}
		done, failed = c.Step/s.Every, false
		if text != "" {
			s.Publish(api.Event{Kind: api.KindSample, Generation: c.Generation, Step: c.Step, Steps: run.Train.Steps, Message: text})
		}
	}
}
