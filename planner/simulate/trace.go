package simulate

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"pnode/planner/plan"
)

// ErrTrace is wrapped by errors about a trace's text.
var ErrTrace = errors.New("simulate: bad trace")

// Bounds of a trace.
const (
	MaxTraceBytes  = 16 << 20
	maxTraceEvents = 1 << 18
	maxTraceMillis = int64(366 * 24 * 3600 * 1000)
	// MaxMachines bounds those that live at one time.
	MaxMachines  = 4096
	maxNameBytes = 64

	milli  = int64(1e6)
	second = int64(1e9)
)

// Kind says what happens to a machine.
type Kind uint8

// The kinds of events of a trace.
const (
	Add    Kind = iota + 1 // it was started
	Notice                 // it is told that it will be removed
	Remove                 // it is gone
)

var kindNames = map[string]Kind{"add": Add, "notice": Notice, "remove": Remove}

// Event is one line of a trace.
type Event struct {
	AtNanos int64
	Kind    Kind
	Node    string
}

// Trace lists what happens to machines, in order of time.
type Trace struct {
	Events []Event
	// EndNanos is how long it goes on: no shorter than to its last event.
	EndNanos int64
}

// ParseTrace reads lines such as "600000,remove,node5": milliseconds since the start, what happens (add, notice or remove),
// and the machine's name. Empty lines and those that begin with # do not count. Errors wrap ErrTrace and name the line.
func ParseTrace(text string) (Trace, error) {
	if len(text) > MaxTraceBytes {
		return Trace{}, fmt.Errorf("%w: more than %s: want fewer events", ErrTrace, plan.Size(MaxTraceBytes))
	}
	var t Trace
	living, number := map[string]bool{}, 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		e, err := parseEvent(line)
		if err == nil {
			err = t.take(e, living)
		}
		if err != nil {
			return Trace{}, fmt.Errorf("%w: line %d: %w", ErrTrace, number, err)
		}
	}
	if len(t.Events) == 0 {
		return Trace{}, fmt.Errorf("%w: it has no event: want lines such as 0,add,node1", ErrTrace)
	}
	t.EndNanos = t.Events[len(t.Events)-1].AtNanos
	return t, nil
}

// parseEvent reads one line.
func parseEvent(line string) (e Event, err error) {
	fields := strings.SplitN(line, ",", 4)
	if len(fields) != 3 {
		return e, fmt.Errorf("%q: want three fields, MILLISECONDS,add|notice|remove,NAME", plan.Clip(line, maxNameBytes))
	}
	for i := range fields {
		fields[i] = strings.TrimSpace(fields[i])
	}
	millis, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil || millis < 0 || millis > maxTraceMillis {
		return e, fmt.Errorf("time %q: want whole milliseconds since the start, at most %d", plan.Clip(fields[0], maxNameBytes), maxTraceMillis)
	}
	kind, ok := kindNames[fields[1]]
	if !ok {
		return e, fmt.Errorf("event %q: want add, notice or remove", plan.Clip(fields[1], maxNameBytes))
	}
	if fields[2] == "" || !plan.Printable(fields[2], maxNameBytes) {
		return e, fmt.Errorf("name %q: want 1 to %d printable characters", plan.Clip(fields[2], maxNameBytes), maxNameBytes)
	}
	return Event{millis * milli, kind, fields[2]}, nil
}

// take appends an event that may follow those before, and keeps who lives.
func (t *Trace) take(e Event, living map[string]bool) error {
	switch last := len(t.Events) - 1; {
	case len(t.Events) >= maxTraceEvents:
		return fmt.Errorf("more than %d events: want a shorter trace", maxTraceEvents)
	case last >= 0 && t.Events[last].AtNanos > e.AtNanos:
		return fmt.Errorf("time %d is before %d of the event before it: want them in order, as sort -s -n -t, -k1,1 makes it", e.AtNanos/milli, t.Events[last].AtNanos/milli)
	case e.Kind == Add && living[e.Node]:
		return fmt.Errorf("add of %q, which is there already: want another name, or a remove before", e.Node)
	case e.Kind != Add && !living[e.Node]:
		return fmt.Errorf("%q is not there: want an add before", e.Node)
	case e.Kind == Add && len(living) >= MaxMachines:
		return fmt.Errorf("more than %d machines at a time", MaxMachines)
	}
	switch e.Kind {
	case Add:
		living[e.Node] = true
	case Remove:
		delete(living, e.Node)
	}
	t.Events = append(t.Events, e)
	return nil
}

// Most returns how many machines live at one time at most.
func (t Trace) Most() (most int) {
	living := 0
	for _, e := range t.Events {
		switch e.Kind {
		case Add:
			living++
		case Remove:
			living--
		}
		most = max(most, living)
	}
	return most
}

// Noticed returns the trace with a notice so long before each removal, as clouds give it. Machines that have one keep it.
func (t Trace) Noticed(before int64) Trace {
	noticed, added := map[string]bool{}, map[string]int64{}
	var all []Event
	for _, e := range t.Events {
		switch e.Kind {
		case Add:
			added[e.Node] = e.AtNanos
			delete(noticed, e.Node)
		case Notice:
			noticed[e.Node] = true
		case Remove:
			if !noticed[e.Node] {
				all = append(all, Event{max(added[e.Node], e.AtNanos-before), Notice, e.Node})
			}
		}
		all = append(all, e)
	}
	slices.SortStableFunc(all, func(a, b Event) int { return cmp.Compare(a.AtNanos, b.AtNanos) })
	return Trace{all, t.EndNanos}
}

// farFuture is later than any event.
const farFuture = math.MaxInt64 / 4
