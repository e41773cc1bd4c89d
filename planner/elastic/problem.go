package elastic

import (
	"errors"
	"fmt"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/plan"
)

// ErrBadProblem is wrapped by errors about problems that make no sense.
var ErrBadProblem = errors.New("elastic: bad problem")

// NoRoom names a stage that has no memory for one micro-batch in flight, whatever it
// recomputes. It is an error.
type NoRoom struct {
	Stage                int
	NeedBytes, RoomBytes int64
}

func (e *NoRoom) Error() string {
	return fmt.Sprintf("elastic: stage %d needs %d bytes for one micro-batch in flight, %d are free", e.Stage, e.NeedBytes, e.RoomBytes)
}

// Problem is one replica's pipeline. Boundaries[i] joins stage i with stage i+1.
type Problem struct {
	Stages     []Stage
	Boundaries []Boundary
	// Micros counts the micro-batches of a step: more than that are never in flight.
	Micros int
	// Widest and Narrowest bound the codecs that a boundary may use: the most exact, and the
	// one of the fewest bits; zero is plan.CodecF32.
	Widest, Narrowest plan.Codec
	// MarginPercent is how late messages may be without showing, in percent of a link's round trip.
	MarginPercent int
}

// Stage has the time and memory of one stage.
type Stage struct {
	// Time is per micro-batch with nothing recomputed.
	Time schedule.StageTime
	// RoomBytes is the memory for micro-batches in flight, SlotBytes the size of each with
	// nothing recomputed.
	RoomBytes, SlotBytes int64
	// Layers lists what the stage may recompute; nil is nothing.
	Layers []cost.Recomputations
	// Given lists by layer what it recomputes in any case, within Time, SlotBytes and what
	// RoomBytes leaves out; nil is nothing. A stage with it has no Layers.
	Given []cost.Recomputation
}

// Boundary joins two stages: activations of so many elements go forth, their gradients
// back, and a token has some of them; 0 is all. Elements are at least as many as any neighbouring stage's output.
type Boundary struct {
	Elements, Token int64
	Forth, Back     cost.Link
}

// at returns the boundary's time with a codec.
func (b Boundary) at(c plan.Codec) schedule.Boundary {
	bytes := c.Bytes(b.Elements, b.Token)
	return schedule.Boundary{Activation: b.Forth.Hop(bytes), Gradient: b.Back.Hop(bytes)}
}

// Decision is how a pipeline runs best.
type Decision struct {
	// Warmups counts by stage the forwards that precede the first backward: one less than the
	// micro-batches in flight.
	Warmups []int
	Rooms   []Room // by stage
	// Recompute has levels by stage and layer; a stage that recomputes nothing has nil.
	Recompute [][]model.Recompute
	// Ahead counts by stage the last layers that recompute before their gradient has come, in the
	// wait for it: the Recompute of Costs. The others recompute in Input.
	Ahead  []int
	Codecs []plan.Codec
	// Exposed has by boundary the least period with the next more exact codec there, 0 where
	// the most exact one is.
	Exposed []schedule.Nanos
	// Costs has the times of stages and boundaries with all that.
	Costs  schedule.Costs
	Period schedule.Nanos
	Bound  Bound
}

// Room says what a stage has room for, with what it recomputes.
type Room struct {
	// InFlight micro-batches fit; math.MaxInt32 where all of a step's do.
	InFlight int
	// SlotBytes is the size of each of them, PassBytes once what passes need beyond their needs
	// without recomputation.
	SlotBytes, PassBytes int64
}

// Step returns about the time of a step of so many micro-batches: one passes alone, then one
// each period.
func (d Decision) Step(micros int) schedule.Nanos {
	return d.Costs.RoundTrip() + schedule.Nanos(micros-1)*d.Period
}

// maxInFlight bounds the micro-batches in flight on a stage, as the model's slots do.
const maxInFlight = 4096

func (p Problem) check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrBadProblem, fmt.Sprintf(format, args...))
	}
	switch {
	case len(p.Stages) == 0 || len(p.Boundaries) != len(p.Stages)-1:
		return bad("%d stages with %d boundaries", len(p.Stages), len(p.Boundaries))
	case p.Micros < 1 || p.Micros > schedule.MaxNumber:
		return bad("%d micro-batches, want 1 to %d", p.Micros, schedule.MaxNumber)
	case p.MarginPercent < 0 || p.MarginPercent > 1000:
		return bad("a margin of %d percent, want 0 to 1000", p.MarginPercent)
	case p.widest() > p.narrowest() || !p.widest().Valid() || !p.narrowest().Valid():
		return bad("codecs from %v to %v", p.Widest, p.Narrowest)
	}
	for i, s := range p.Stages {
		if s.SlotBytes < 0 || s.SlotBytes > cost.MaxBytes || s.RoomBytes > 1<<62 {
			return bad("stage %d takes %d bytes a micro-batch of %d", i, s.SlotBytes, s.RoomBytes)
		}
		for l, levels := range s.Layers {
			for _, lean := range levels {
				if !lean.Sensible() || lean.FreedBytes > s.SlotBytes {
					return bad("stage %d layer %d: recomputing %+v of %d bytes", i, l, lean, s.SlotBytes)
				}
			}
		}
		if err := s.checkGiven(); err != nil {
			return bad("stage %d: %v", i, err)
		}
	}
	for i, b := range p.Boundaries {
		if min(b.Elements, b.Token) < 0 || b.Elements > cost.MaxBytes/4 {
			return bad("boundary %d of %d elements, %d a token", i, b.Elements, b.Token)
		}
	}
	return nil
}

func (s Stage) checkGiven() error {
	if s.Given != nil && s.Layers != nil {
		return errors.New("what is recomputed is given and to be chosen")
	}
	left := s.Time.Input
	for l, lean := range s.Given {
		if left -= lean.Time; !lean.Sensible() || left < 0 {
			return fmt.Errorf("layer %d recomputes %+v in a backward of %d ns", l, lean, s.Time.Input)
		}
	}
	return nil
}

// Costs returns the problem's times with codecs and nothing recomputed.
func (p Problem) Costs(codecs []plan.Codec) schedule.Costs {
	c := schedule.Costs{Stages: make([]schedule.StageTime, len(p.Stages)), Boundaries: make([]schedule.Boundary, len(p.Boundaries))}
	for i, s := range p.Stages {
		c.Stages[i] = s.Time
	}
	for i, b := range p.Boundaries {
		c.Boundaries[i] = b.at(codecs[i])
	}
	return c
}
