package plan

import (
	"fmt"
	"math"
	"slices"
)

// Stream is the micro-batches that a run has not trained on, in the order in which they are taken: those of Given, then
// all from Fresh on. A run's micro-batches are numbered from 0: step s of a run of m micro-batches a step has numbers (s-1)m to sm-1. Given has
// what was handed out, and came back because the replica that had it was not counted in an outer step.
type Stream struct {
	// Given has ranges in order, with numbers between them, all below Fresh.
	Given []MicroRange `json:"given,omitempty"`
	Fresh int64        `json:"fresh,omitempty"`
}

// MicroRange is the half-open range [First, End) of micro-batches of a run, or of places in a stream.
type MicroRange struct {
	First int64 `json:"first"`
	End   int64 `json:"end"`
}

// Bounds of a stream.
const (
	// MaxGiven counts the ranges. An outer step adds one for each replica at most, and takes some.
	MaxGiven = 2048
	maxFresh = 1 << 56
)

// Full returns what a stream after a step stands for, in a run of so many micro-batches a step: the zero value has every step take its own.
func (s Stream) Full(step Step, micros int) Stream {
	if s.Fresh == 0 && len(s.Given) == 0 {
		return Stream{Fresh: int64(step) * int64(micros)}
	}
	return s
}

// Taken returns how many micro-batches are not in the stream, because steps have taken them.
func (s Stream) Taken() int64 {
	taken := s.Fresh
	for _, r := range s.Given {
		taken -= r.End - r.First
	}
	return taken
}

// Brief returns the zero value for a stream after a step in which every step takes its own micro-batches, else the stream: what Full reads.
func (s Stream) Brief(step Step, micros int) Stream {
	if len(s.Given) == 0 && s.Fresh == int64(step)*int64(micros) {
		return Stream{}
	}
	return s
}

// Validate returns an error unless the ranges are in order with numbers between them, few, and not too far. It wraps ErrBadPlan.
func (s Stream) Validate() error {
	if s.Fresh < 0 || s.Fresh > maxFresh || len(s.Given) > MaxGiven {
		return fmt.Errorf("%w: micro-batches from %d on and %d ranges before, want 0 to %d and at most %d", ErrBadPlan, s.Fresh, len(s.Given), int64(maxFresh), MaxGiven)
	}
	next := int64(0)
	for _, r := range s.Given {
		if r.First < next || r.End <= r.First || r.End >= s.Fresh {
			return fmt.Errorf("%w: micro-batches [%d,%d) are given back, want ranges in order, none empty or next to another, below %d", ErrBadPlan, r.First, r.End, s.Fresh)
		}
		next = r.End + 1
	}
	return nil
}

// At returns the micro-batch in a place of the stream, counted from 0.
func (s Stream) At(place int64) int64 {
	for _, r := range s.Given {
		if place < r.End-r.First {
			return r.First + place
		}
		place -= r.End - r.First
	}
	return s.Fresh + place
}

// Sample returns which micro-batch of which step the one in a place of a full stream is numbered as, in a run of so many micro-batches a step.
func (s Stream) Sample(place int64, micros int) (Step, Micro) {
	n := s.At(place)
	return Step(n/int64(micros)) + 1, Micro(n % int64(micros))
}

// Without returns the stream without what is in some places: ranges in order that do not overlap. Where more than MaxGiven ranges
// remain, the last of them are dropped: nobody trains on these.
func (s Stream) Without(taken []MicroRange) Stream {
	var rest []MicroRange
	keep := func(first, end int64) {
		switch last := len(rest) - 1; {
		case first >= end:
		case last >= 0 && rest[last].End == first:
			rest[last].End = end
		default:
			rest = append(rest, MicroRange{first, end})
		}
	}
	place := int64(0) // of the first micro-batch of a range
	for _, r := range append(slices.Clip(s.Given), MicroRange{s.Fresh, math.MaxInt64}) {
		next, end := r.First, place+r.End-r.First
		for len(taken) > 0 && taken[0].First < end {
			keep(next, r.First+max(taken[0].First, place)-place)
			next = r.First + min(taken[0].End, end) - place
			if taken[0].End > end {
				break // the rest of it is in the next range
			}
			taken = taken[1:]
		}
		keep(next, r.End)
		place = end
	}
	last := len(rest) - 1
	return Stream{Given: rest[:min(last, MaxGiven):min(last, MaxGiven)], Fresh: rest[last].First}
}
