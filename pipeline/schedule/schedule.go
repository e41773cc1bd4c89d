package schedule

import (
	"errors"
	"slices"
	"strconv"
)

// Sentinel errors.
var (
	// ErrBadText is wrapped by every error about text that is not a schedule.
	ErrBadText = errors.New("schedule: bad text")
	// ErrBadShape is wrapped by every error about arguments of a generator.
	ErrBadShape = errors.New("schedule: does not fit")
	// ErrInvalid is wrapped by every error about a schedule that cannot be carried out.
	ErrInvalid = errors.New("schedule: invalid")
	// ErrBadCosts is wrapped by errors about costs that do not fit a schedule.
	ErrBadCosts = errors.New("schedule: bad costs")
)

// Schedule is per worker the list of its actions in program order. A worker holds the
// (replica, stage) pairs that it computes: one in 1F1B, several with chunks or
// bidirectional pipelines.
type Schedule struct {
	Workers [][]Action
	// Segments is into how many a sequence is cut when micro-batches are segments:
	// Micro = sequence*Segments + segment. 0 when they are whole sequences.
	Segments int
}

// Sequence is the micro-batch of whole sequences that a micro-batch of the schedule belongs to,
// and the number of the segment that it is.
func (s Schedule) Sequence(m Micro) (sequence Micro, segment int) {
	n := Micro(max(s.Segments, 1))
	return m / n, int(m % n)
}

// Replicas is how many there are, from 0 to the highest number.
func (s Schedule) Replicas() int {
	n := 0
	for _, actions := range s.Workers {
		for _, a := range actions {
			n = max(n, int(a.Replica)+1)
		}
	}
	return n
}

// Stages is how many a replica has.
func (s Schedule) Stages(r Replica) int {
	n := 0
	for _, actions := range s.Workers {
		for _, a := range actions {
			if a.Op != Step && a.Replica == r {
				n = max(n, int(a.Stage)+1)
			}
		}
	}
	return n
}

// Holder is the worker that computes a stage, -1 for none.
func (s Schedule) Holder(r Replica, st Stage) int {
	return slices.IndexFunc(s.Workers, func(actions []Action) bool {
		return slices.ContainsFunc(actions, func(a Action) bool { return a.Op == Forward && a.Of(r, st) })
	})
}

// Join puts schedules of disjoint replicas side by side: the workers of the first, then
// those of the second, and so on. All must have the same Segments.
func Join(parts ...Schedule) Schedule {
	var all Schedule
	for _, p := range parts {
		all.Segments = p.Segments
		all.Workers = append(all.Workers, p.Workers...)
	}
	return all
}

// MaxWorkers bounds the workers of a schedule.
const MaxWorkers = 1 << 14

// segmentsLine begins the text form of a schedule with segments.
const segmentsLine = "segments "

// String is the text form: one line per worker, actions separated by one blank. A
// schedule with segments says so in a line before: `segments 4`.
func (s Schedule) String() string {
	var b []byte
	if s.Segments > 1 {
		b = append(b, segmentsLine...)
		b = append(strconv.AppendInt(b, int64(s.Segments), 10), '\n')
	}
	for _, actions := range s.Workers {
		for i, a := range actions {
			if i > 0 {
				b = append(b, ' ')
			}
			b = a.appendText(b)
		}
		b = append(b, '\n')
	}
	return string(b)
}
