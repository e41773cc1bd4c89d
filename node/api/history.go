package api

import (
	"slices"
	"time"

	"pnode/pipeline/wire"
)

const (
	// MaxHappened bounds the events in a History.
	MaxHappened = 256
	// mostSamples bounds the generated texts in a History.
	mostSamples = 32
	// maxMessage bounds a message that is kept there.
	maxMessage = 2 << 10
)

// History remembers a run in a bounded size, however long it goes on: the losses of all its
// steps, thinned out, and the newest of its other events.
type History struct {
	// Seq numbers the newest event in it: a reader who follows from there misses nothing.
	Seq uint64 `json:"seq"`
	Losses
	// Drift is that of outer steps since this process began, see OuterStep.
	Drift Curve `json:"drift"`
	// LearningRate, GradientNorm and TokensPerS are those of steps since this process began, see Event.
	LearningRate Curve `json:"learning_rate"`
	GradientNorm Curve `json:"gradient_norm"`
	TokensPerS   Curve `json:"tokens_per_s"`
	// Happened are events of all kinds but KindStep, the oldest first. Of outer steps of a generation the newest is there, and each that is not
	// like most.
	Happened []Happened `json:"happened"`
}

// Happened is an event and when it was published on this node.
type Happened struct {
	Time  time.Time `json:"time"`
	Event Event     `json:"event"`
}

// note takes in an event.
func (h *History) note(e Event, now time.Time) {
	h.Seq = e.Seq
	if e.Kind == KindStep {
		h.noteStep(e)
		return
	}
	if e.Outer != nil && e.Outer.Drift != nil {
		h.Drift.add(e.Step, *e.Outer.Drift)
	}
	if e.Outer != nil { // of many that are like most, the newest of a generation is enough
		h.Happened = slices.DeleteFunc(h.Happened, func(old Happened) bool {
			return old.Event.Outer != nil && old.Event.Generation == e.Generation && old.Event.Outer.Quiet()
		})
	}
	if e.Kind == KindSample {
		h.dropSamples(mostSamples - 1)
	}
	e.Message = wire.Clip(e.Message, maxMessage)
	if len(h.Happened) == MaxHappened {
		h.Happened = slices.Delete(h.Happened, 0, 1)
	}
	h.Happened = append(h.Happened, Happened{now, e})
}

// dropSamples drops generated texts but for the newest ones: they are long, and other events are to stay.
func (h *History) dropSamples(keep int) {
	for i := len(h.Happened) - 1; i >= 0; i-- {
		if h.Happened[i].Event.Kind != KindSample {
			continue
		}
		if keep--; keep < 0 {
			h.Happened = slices.Delete(h.Happened, i, i+1)
			return // the others went with those before
		}
	}
}

// noteStep takes in a step. One that comes again takes the place of the first time, also where less is known of it.
func (h *History) noteStep(e Event) {
	known := func(v float64) *float64 {
		if v == 0 {
			return nil
		}
		return &v
	}
	for _, of := range []struct {
		curve *Curve
		value *float64
	}{
		{&h.Train, &e.Loss},
		{&h.HeldOut, e.HeldOut},
		{&h.LearningRate, known(e.LearningRate)},
		{&h.GradientNorm, e.GradientNorm},
		{&h.TokensPerS, known(e.TokensPerS)},
	} {
		if of.value != nil {
			of.curve.add(e.Step, *of.value)
		} else {
			of.curve.back(e.Step)
		}
	}
}

// curves are all curves in it.
func (h *History) curves() []*Curve {
	return []*Curve{&h.Train, &h.HeldOut, &h.Drift, &h.LearningRate, &h.GradientNorm, &h.TokensPerS}
}
