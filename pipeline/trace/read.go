package trace

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"pnode/pipeline/schedule"
	"pnode/planner/plan"
)

// ErrBadTrace is wrapped by every error about a file that is no trace of this program.
var ErrBadTrace = errors.New("trace: bad trace")

// Bounds of what is read.
const (
	maxFileBytes = 1 << 30
	maxWorkers   = schedule.MaxWorkers
	maxName      = 200
	maxNanos     = math.MaxInt64 / 2
)

// Trace holds the records of nodes.
type Trace struct {
	// Names of workers, and their peers, as far as the files have them.
	Names  map[int]string
	Peers  map[int]plan.PeerID
	Spans  []Timed
	Copies []TimedCopy
}

// Timed is a span in nanoseconds since 1970.
type Timed struct {
	Generation plan.Generation
	Step       plan.Step
	Worker     int
	Action     schedule.Action
	Segments   int // into how many the schedule cuts sequences; 0 and 1: whole ones
	Start, End int64
}

// event is one event of Chrome's format.
type event struct {
	Name string      `json:"name"`
	Cat  string      `json:"cat"`
	Ph   string      `json:"ph"`
	Ts   json.Number `json:"ts"`
	Dur  json.Number `json:"dur"`
	Pid  int         `json:"pid"`
	Tid  int         `json:"tid"`
	Args struct {
		Generation plan.Generation `json:"generation"`
		Step       plan.Step       `json:"step"`
		Segments   int             `json:"segments"`
		Name       string          `json:"name"`
		Peer       plan.PeerID     `json:"peer"`
	} `json:"args"`
}

// Read reads a file that a Recorder wrote, also one whose end is missing because its node
// was killed. The error wraps ErrBadTrace.
func Read(r io.Reader) (Trace, error) {
	t := Trace{Names: map[int]string{}, Peers: map[int]plan.PeerID{}}
	d := json.NewDecoder(io.LimitReader(r, maxFileBytes))
	if token, err := d.Token(); err != nil || token != json.Delim('[') {
		return Trace{}, fmt.Errorf("%w: want a JSON array of events, as --trace writes it", ErrBadTrace)
	}
	for d.More() {
		var e event
		err := d.Decode(&e)
		if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
			return t, nil // cut off
		}
		if err == nil {
			err = t.take(e)
		}
		if err != nil {
			return Trace{}, fmt.Errorf("%w: event %d: %w", ErrBadTrace, len(t.Spans)+1, err)
		}
	}
	return t, nil
}

func (t *Trace) take(e event) error {
	if e.Pid < 0 || e.Pid >= maxWorkers {
		return fmt.Errorf("worker %d, want 0 to %d", e.Pid, maxWorkers-1)
	}
	switch {
	case e.Ph == "M" && len(e.Args.Name) <= maxName && len(e.Args.Peer) <= maxName:
		t.Names[e.Pid], t.Peers[e.Pid] = e.Args.Name, e.Args.Peer
		return nil
	case e.Ph == "":
		return nil
	case e.Ph != "X":
		return fmt.Errorf("phase %.20q, want X or M", e.Ph)
	case len(t.Spans)+len(t.Copies) == MaxSpans:
		return fmt.Errorf("more than %d spans", MaxSpans)
	}
	start, err := nanos(e.Ts)
	if err != nil {
		return err
	}
	length, err := nanos(e.Dur)
	if err == nil && e.Cat == copyCategory {
		if !copyName.MatchString(e.Name) || e.Tid < 0 || e.Tid > maxRow {
			return fmt.Errorf("copy %.20q in row %d: want a plain name and a row up to %d", e.Name, e.Tid, maxRow)
		}
		t.Copies = append(t.Copies, TimedCopy{
			Name: e.Name, Generation: e.Args.Generation, Step: e.Args.Step, Worker: e.Pid, Row: e.Tid, Start: start, End: start + length,
		})
		return nil
	}
	a, parseErr := schedule.ParseAction(e.Name)
	err = errors.Join(parseErr, err)
	if e.Args.Segments < 0 {
		err = errors.Join(err, fmt.Errorf("%d segments, want 1 or more", e.Args.Segments))
	}
	if err != nil {
		return err
	}
	t.Spans = append(t.Spans, Timed{
		Generation: e.Args.Generation, Step: e.Args.Step, Worker: e.Pid, Action: a, Segments: e.Args.Segments,
		Start: start, End: start + length,
	})
	return nil
}

// nanos converts microseconds with up to three decimals exactly: a float64 has no nanoseconds since
// 1970.
func nanos(micros json.Number) (int64, error) {
	whole, part, _ := strings.Cut(micros.String(), ".")
	n, err := strconv.ParseUint(whole+(part + "000")[:3], 10, 63)
	if err != nil || whole == "" || len(part) > 3 || n > maxNanos {
		return 0, fmt.Errorf("%.40q is no time in microseconds with up to 3 digits after the point", micros)
	}
	return int64(n), nil
}

// Key names a step of a generation: after a failure a step may come again.
type Key struct {
	Generation plan.Generation
	Step       plan.Step
}

// Keys returns the steps that the trace has spans of, in order.
func (t Trace) Keys() []Key {
	seen := map[Key]bool{}
	var keys []Key
	for _, s := range t.Spans {
		if k := (Key{s.Generation, s.Step}); !seen[k] {
			seen[k] = true
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b Key) int {
		return cmp.Or(cmp.Compare(a.Generation, b.Generation), cmp.Compare(a.Step, b.Step))
	})
	return keys
}

// Segments returns into how many the schedule of a step cuts sequences, 0 or 1 for whole ones.
func (t Trace) Segments(k Key) int {
	for _, s := range t.Spans {
		if (Key{s.Generation, s.Step}) == k {
			return s.Segments
		}
	}
	return 0
}

// Timeline returns a step in the form of a simulation's, from its first action on: by worker the spans
// in the order of their starts, sends, waits for messages and reductions among them.
// Workers without spans have none.
func (t Trace) Timeline(k Key) schedule.Timeline {
	var line schedule.Timeline
	first, last := int64(math.MaxInt64), int64(0)
	for _, s := range t.Spans {
		if (Key{s.Generation, s.Step}) == k {
			first, last = min(first, s.Start), max(last, s.End)
			for s.Worker >= len(line.Workers) {
				line.Workers = append(line.Workers, nil)
			}
		}
	}
	for _, s := range t.Spans {
		if (Key{s.Generation, s.Step}) == k {
			line.Workers[s.Worker] = append(line.Workers[s.Worker], schedule.Span{
				Action: s.Action, Start: schedule.Nanos(s.Start - first), End: schedule.Nanos(s.End - first),
			})
		}
	}
	line.PeakLive = make([]int, len(line.Workers))
	for w, spans := range line.Workers {
		slices.SortStableFunc(spans, func(a, b schedule.Span) int {
			return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.End, b.End))
		})
		line.PeakLive[w] = peakLive(spans)
	}
	if last > 0 {
		line.Makespan = schedule.Nanos(last - first)
	}
	return line
}

// peakLive returns the most micro-batches between forward and weight gradient.
func peakLive(spans []schedule.Span) int {
	live, peak := 0, 0
	for _, s := range spans {
		switch s.Action.Op {
		case schedule.Forward:
			live++
			peak = max(peak, live)
		case schedule.Backward, schedule.BackwardWeight:
			live--
		}
	}
	return peak
}
