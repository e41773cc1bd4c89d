package api

import (
	"errors"
	"fmt"

	"pnode/pipeline/wire/strict"
	"pnode/planner/plan"
)

// MaxLossesBytes bounds the encoded form of Losses: a point has three numbers and two counts.
const MaxLossesBytes = 1 << 20

// ErrBadLosses is wrapped by errors about losses that no node wrote.
var ErrBadLosses = errors.New("api: bad losses")

// Losses are the curves of a run, as nodes keep them and tell them each other.
type Losses struct {
	// Train is the training loss, HeldOut the held-out loss, in nats per token.
	Train   Curve `json:"train"`
	HeldOut Curve `json:"held_out"`
}

// DecodeLosses reads the JSON of losses. The error wraps ErrBadLosses.
func DecodeLosses(data []byte) (l Losses, err error) {
	if len(data) > MaxLossesBytes {
		return Losses{}, fmt.Errorf("%w: %d bytes, at most %d", ErrBadLosses, len(data), MaxLossesBytes)
	}
	if err = strict.Decode(data, &l); err == nil {
		err = errors.Join(l.Train.check(), l.HeldOut.check())
	}
	if err != nil {
		return Losses{}, fmt.Errorf("%w: %w", ErrBadLosses, err)
	}
	return l, nil
}

// Recall takes in what was not seen here: the curves of this node before, or of another one.
func (h *Hub) Recall(l Losses) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.past.Train.recall(l.Train)
	h.past.HeldOut.recall(l.HeldOut)
}

// recall takes the other curve over if it has more steps, and appends what is newer here.
func (c *Curve) recall(other Curve) {
	if other.steps() <= c.steps() {
		return
	}
	own := c.Points
	*c = Curve{Every: max(c.Every, other.Every)}
	for _, p := range other.Points {
		c.put(p)
	}
	end := c.Points[len(c.Points)-1].Step
	for _, p := range own {
		if p.Step > end {
			c.put(p)
		}
	}
	c.thin()
}

// steps counts the steps of a curve.
func (c *Curve) steps() (n int) {
	for _, p := range c.Points {
		n += p.Count
	}
	return n
}

// check wants what add makes: points in the order of their steps, each in steps of its own.
func (c *Curve) check() error {
	if len(c.Points) > MaxPoints || c.Every > mostEvery || c.Every&(c.Every-1) != 0 || len(c.Points) > 0 && c.Every == 0 {
		return fmt.Errorf("a curve of %d points of %d steps each: want at most %d, of a power of two", len(c.Points), c.Every, MaxPoints)
	}
	free := plan.Step(1) // the first step that the next point may be of
	for i, p := range c.Points {
		if p.Step > mostStep {
			return fmt.Errorf("point %d is of step %d, at most %d", i, p.Step, plan.Step(mostStep))
		}
		if p.Step < free || p.Count < 1 || plan.Step(p.Count) > p.Step-c.bucket(p.Step)*c.Every {
			return fmt.Errorf("point %d is of %d steps up to step %d, behind step %d", i, p.Count, p.Step, free-1)
		}
		if !(-mostValue <= p.Low && p.Low <= p.Mean && p.Mean <= p.High && p.High <= mostValue) {
			return fmt.Errorf("point %d has %g within %g and %g", i, p.Mean, p.Low, p.High)
		}
		free = (c.bucket(p.Step)+1)*c.Every + 1
	}
	return nil
}
