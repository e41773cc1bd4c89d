package node

import (
	"cmp"
	"slices"

	"pnode/node/api"
	"pnode/planner/plan"
)

// chronicle are the newest committed steps of the run as this node knows them, each once and
// in the order of their places. Its own workers tell it the steps of the plans that it has a
// part in; of all others it reads in the chronicles of other nodes (steps.go). It is not safe
// for use by several goroutines.
type chronicle struct {
	kept []api.Event // oldest first
	end  place       // of the newest step told, or where a generation begins
	// begun: it is known where to tell from. A node that comes into a run which goes on does
	// not tell what was before.
	begun bool
	// owed: steps of earlier generations are missing up to this one. Those of the present
	// generation wait in held, since a step is not told after a newer one.
	owed plan.Step
	held []api.Event
}

// place orders the committed steps: a generation that starts from an older checkpoint repeats
// steps, under its own number.
type place struct {
	Generation plan.Generation `json:"generation"`
	Step       plan.Step       `json:"step"`
}

func placeOf(e api.Event) place { return place{e.Generation, e.Step} }

func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(p.Generation, q.Generation), cmp.Compare(p.Step, q.Step))
}

// maxChronicle bounds what is kept, held and read at once: as many as a subscriber of events
// can lag behind.
const maxChronicle = api.HistoryEvents

// begin notes that a generation starts from the state after a step. Of what is owed from
// the one before nothing may come any more: give up says that, or take.
func (c *chronicle) begin(g plan.Generation, start plan.Step) (shown []api.Event) {
	shown = c.giveUp()
	switch {
	case c.begun && c.end.Step < start:
		c.owed = start
	case c.end.compare(place{g, start}) < 0:
		c.end = place{g, start}
	}
	c.begun = true
	return shown
}

// beginAt has the telling begin with a step of a generation that this node came too late for.
func (c *chronicle) beginAt(p place) {
	if !c.begun {
		c.begun, c.end = true, place{p.Generation, p.Step - min(p.Step, 1)}
	}
}

// note takes in a step of this node's own workers and gives what is to be shown now.
func (c *chronicle) note(e api.Event) (shown []api.Event) {
	if c.owed == 0 {
		return c.tell([]api.Event{e})
	}
	if c.held = append(c.held, e); len(c.held) >= maxChronicle {
		return c.giveUp()
	}
	return nil
}

// take takes in what another node's chronicle has after end, and gives what is to be shown.
// Steps that are owed are there once anything as new as the last of them is.
func (c *chronicle) take(events []api.Event) (shown []api.Event) {
	shown = c.tell(events)
	if c.owed != 0 && c.end.Step >= c.owed {
		shown = append(shown, c.giveUp()...)
	}
	return shown
}

// giveUp stops waiting for what is owed.
func (c *chronicle) giveUp() (shown []api.Event) {
	held := c.held
	c.owed, c.held = 0, nil
	return c.tell(held)
}

// tell keeps those of the events that are newer than the end.
func (c *chronicle) tell(events []api.Event) (shown []api.Event) {
	for _, e := range events {
		if e.Kind == api.KindStep && placeOf(e).compare(c.end) > 0 {
			c.end = placeOf(e)
			shown = append(shown, e)
		}
	}
	c.kept = append(c.kept, shown...)
	if over := len(c.kept) - maxChronicle; over > 0 {
		c.kept = slices.Delete(c.kept, 0, over)
	}
	return shown
}

// after are the steps kept that are newer than p.
func (c *chronicle) after(p place) []api.Event {
	i, found := slices.BinarySearchFunc(c.kept, p, func(e api.Event, p place) int { return placeOf(e).compare(p) })
	if found {
		i++
	}
	return slices.Clone(c.kept[i:])
}
