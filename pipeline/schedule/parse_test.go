package schedule

import (
	"fmt"
	"strings"
)

// Parse reads the text form of scenarios and of fuzzing. It accepts canonical text only, with at
// most MaxWorkers lines, and does not judge whether the schedule can be carried out: that is
// Validate's.
func Parse(text string) (Schedule, error) {
	lines := strings.Count(text, "\n")
	if lines > MaxWorkers {
		return Schedule{}, fmt.Errorf("%w: %d lines, at most %d are accepted", ErrBadText, lines, MaxWorkers)
	}
	var s Schedule
	if line, rest, found := strings.Cut(text, "\n"); found && strings.HasPrefix(line, segmentsLine) {
		n, end, ok := cutNumber(line[len(segmentsLine):])
		if !ok || end != "" || n < 2 {
			return Schedule{}, fmt.Errorf("%w: %.40q, want for example %q", ErrBadText, line, segmentsLine+"4")
		}
		s.Segments, text = n, rest
	}
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
