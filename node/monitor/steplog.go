package monitor

import (
	"cmp"
	"slices"

	"pnode/node/api"
	"pnode/planner/plan"
)

// position orders the committed steps of a run. A generation that starts from an older
// checkpoint repeats steps, under its own number.
type position struct {
	Generation plan.Generation `json:"generation"`
	Step       plan.Step       `json:"step"`
}

func positionOf(e api.Event) position { return position{e.Generation, e.Step} }

func (p position) compare(q position) int {
	return cmp.Or(cmp.Compare(p.Generation, q.Generation), cmp.Compare(p.Step, q.Step))
}

// maxLogged bounds the steps that are kept, held back and read at once: as many as a subscriber
// of events can lag behind.
const maxLogged = api.HistoryEvents

// stepLog holds the newest committed steps of the run as this node knows them, each once and in
// the order of their positions. It only grows at its end. This node's workers report the steps of
// plans that it has a part in; all others are merged from other nodes' logs.
type stepLog struct {
	publish func(api.Event)
	kept    []api.Event
	logEnd
	// held are steps of the present generation that wait for owed ones: a step is not logged
	// after a newer one.
	held []api.Event
}

// logEnd says how far a stepLog has come.
type logEnd struct {
	end position
	// begun says that it is known where to log from. A node that comes into a run which goes on
	// does not log what was before.
	begun bool
	// owed is the last missing step of earlier generations, 0 for none.
	owed plan.Step
}

// begin notes where a generation starts. Steps still owed from the one before do not come any
// more.
func (l *stepLog) begin(start position) {
	l.giveUp()
	switch {
	case l.begun && l.end.Step < start.Step:
		l.owed = start.Step
	case l.end.compare(start) < 0:
		l.end = start
	}
	l.begun = true
}

// restart forgets the steps of the generations after one, which are made once more: they do not count. Where to log from is told anew.
func (l *stepLog) restart(shared plan.Generation) {
	kept := slices.DeleteFunc(l.kept, func(e api.Event) bool { return e.Generation > shared })
	*l = stepLog{publish: l.publish, kept: kept}
}

// beginLate begins with the newest step of a generation that this node came too late for.
func (l *stepLog) beginLate(newest position) {
	if !l.begun {
		l.begun, l.end = true, position{newest.Generation, newest.Step - min(newest.Step, 1)}
	}
}

// report logs a step of this node's own workers, or holds it back.
func (l *stepLog) report(e api.Event) {
	if l.owed == 0 {
		l.add(e)
	} else if l.held = append(l.held, e); len(l.held) >= maxLogged {
		l.giveUp()
	}
}

// merge logs the steps of another node's log that are newer than the end. Steps that are owed are
// here once anything as new as the last of them is.
func (l *stepLog) merge(events []api.Event) (added []api.Event) {
	added = l.add(events...)
	if l.owed != 0 && l.end.Step >= l.owed {
		added = append(added, l.giveUp()...)
	}
	return added
}

// giveUp stops waiting for steps that are owed.
func (l *stepLog) giveUp() (added []api.Event) {
	held := l.held
	l.owed, l.held = 0, nil
	return l.add(held...)
}

// add keeps and publishes those steps that are newer than the end.
func (l *stepLog) add(events ...api.Event) (added []api.Event) {
	for _, e := range events {
		if e.Kind == api.KindStep && positionOf(e).compare(l.end) > 0 {
			l.end = positionOf(e)
			added = append(added, e)
			l.publish(e)
		}
	}
	l.kept = append(l.kept, added...)
	if over := len(l.kept) - maxLogged; over > 0 {
		l.kept = slices.Delete(l.kept, 0, over)
	}
	return added
}

// since returns the steps kept that are newer than a position, oldest first.
func (l *stepLog) since(p position) []api.Event {
	i, found := slices.BinarySearchFunc(l.kept, p, func(e api.Event, p position) int { return positionOf(e).compare(p) })
	if found {
		i++
	}
	return slices.Clone(l.kept[i:])
}
