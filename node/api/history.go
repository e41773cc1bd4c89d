package api

import (
	"slices"
	"time"

	"pnode/pipeline/wire"
)

const (
	// MaxHappened bounds the events in a History.
	MaxHappened = 256
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
		h.Train.add(e.Step, e.Loss)
		if e.HeldOut != nil {
			h.HeldOut.add(e.Step, *e.HeldOut)
		} else {
			h.HeldOut.back(e.Step)
		}
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
	e.Message = wire.Clip(e.Message, maxMessage)
	if len(h.Happened) == MaxHappened {
		h.Happened = slices.Delete(h.Happened, 0, 1)
	}
	h.Happened = append(h.Happened, Happened{now, e})
}
