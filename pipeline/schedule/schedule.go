package schedule

import (
	"errors"
	"fmt"
	"strings"
)

// Sentinel errors.
var (
	// ErrBadText is wrapped by every error about text that is not a schedule.
	ErrBadText = errors.New("schedule: bad text")
	// ErrBadShape is wrapped by every error about arguments of a generator.
	ErrBadShape = errors.New("schedule: bad shape")
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
}

// Worker is the program of the worker that holds the given stage; nil when none does.
// The caller must not change it.
func (s Schedule) Worker(r Replica, st Stage) []Action {
	for _, actions := range s.Workers {
		for _, a := range actions {
			if a.Op == Forward && a.Replica == r && a.Stage == st {
				return actions
			}
		}
	}
	return nil
}

// Join puts schedules of disjoint replicas side by side: the workers of the first, then
// those of the second, and so on.
func Join(parts ...Schedule) Schedule {
	var all Schedule
	for _, p := range parts {
		all.Workers = append(all.Workers, p.Workers...)
	}
	return all
}

// Bounds of the text form.
const (
	MaxTextBytes = 64 << 20
	MaxWorkers   = 1 << 14
)

// String is the text form: one line per worker, actions separated by one blank.
func (s Schedule) String() string {
	var b []byte
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

// Parse reads the text form. It accepts canonical text only, at most MaxTextBytes with
// at most MaxWorkers lines, and does not judge whether the schedule can be carried out:
// that is Validate's.
func Parse(text string) (Schedule, error) {
	if len(text) > MaxTextBytes {
		return Schedule{}, fmt.Errorf("%w: %d bytes, at most %d are accepted", ErrBadText, len(text), MaxTextBytes)
	}
	lines := strings.Count(text, "\n")
	if lines > MaxWorkers {
		return Schedule{}, fmt.Errorf("%w: %d lines, at most %d are accepted", ErrBadText, lines, MaxWorkers)
	}
	var s Schedule
	for text != "" {
		line, rest, found := strings.Cut(text, "\n")
		if !found {
			return Schedule{}, fmt.Errorf("%w: line %d does not end", ErrBadText, len(s.Workers)+1)
		}
		actions, err := parseLine(line)
		if err != nil {
			return Schedule{}, fmt.Errorf("line %d: %w", len(s.Workers)+1, err)
		}
		s.Workers, text = append(s.Workers, actions), rest
	}
	return s, nil
}

func parseLine(line string) ([]Action, error) {
	if line == "" {
		return nil, nil
	}
	actions := make([]Action, 0, strings.Count(line, " ")+1)
	for word := range strings.SplitSeq(line, " ") {
		a, err := ParseAction(word)
		if err != nil {
			return nil, err
		}
		actions = append(actions, a)
	}
	return actions, nil
}
