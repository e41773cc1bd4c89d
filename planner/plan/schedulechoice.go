package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"pnode/pipeline/schedule"
)

// Course is the order in which the workers of a plan compute: what may change between two
// steps of a generation. Its text form is the schedule's, and for 1f1b and gpipe the warm-ups
// of each replica behind it: `zb-h1`, `1f1b 3,2,1,0 3,2,1,0`.
type ScheduleChoice struct {
	Schedule string
	Warmups  [][]int // by replica and stage
}

// Bounds of a course's text form.
const (
	MaxScheduleChoiceBytes = 1 << 16
	maxWarmup              = 1 << 20
)

// Course is the one that the plan begins with.
func (p Plan) ScheduleChoice() ScheduleChoice {
	c := ScheduleChoice{Schedule: p.Schedule}
	for _, pipe := range p.Replicas {
		if pipe.Warmups != nil {
			c.Warmups = append(c.Warmups, pipe.Warmups)
		}
	}
	return c
}

// On is the plan with another course. The error wraps ErrBadPlan; whether the schedule fits
// what the plan places where is left to those who carry it out.
func (p Plan) WithSchedule(c ScheduleChoice) (Plan, error) {
	if c.Warmups != nil && len(c.Warmups) != len(p.Replicas) {
		return Plan{}, fmt.Errorf("%w: course %s has warm-ups of %d replicas, the plan has %d", ErrBadPlan, c, len(c.Warmups), len(p.Replicas))
	}
	p.Schedule, p.Replicas = c.Schedule, slices.Clone(p.Replicas)
	for r := range p.Replicas {
		p.Replicas[r].Warmups = nil
		if c.Warmups != nil {
			p.Replicas[r].Warmups = c.Warmups[r]
		}
		if err := p.checkWarmups(r); err != nil {
			return Plan{}, err
		}
	}
	return p, nil
}

// String is the text form.
func (c ScheduleChoice) String() string {
	b := []byte(c.Schedule)
	for _, warmups := range c.Warmups {
		for i, w := range warmups {
			b = append(b, " ,"[min(i, 1)])
			b = strconv.AppendInt(b, int64(w), 10)
		}
	}
	return string(b)
}

// ParseCourse reads the text form, canonical text of at most MaxCourseBytes. The error wraps
// ErrBadPlan.
func ParseScheduleChoice(text string) (ScheduleChoice, error) {
	if len(text) > MaxScheduleChoiceBytes {
		return ScheduleChoice{}, fmt.Errorf("%w: a course of %d bytes, at most %d are accepted", ErrBadPlan, len(text), MaxScheduleChoiceBytes)
	}
	name, rest, warmups := strings.Cut(text, " ")
	c := ScheduleChoice{Schedule: name}
	if _, err := schedule.ParseSpec(name); err != nil {
		return ScheduleChoice{}, fmt.Errorf("%w: %w", ErrBadPlan, err)
	}
	if !warmups {
		return c, nil
	}
	for part := range strings.SplitSeq(rest, " ") {
		var list []int
		for word := range strings.SplitSeq(part, ",") {
			n, err := strconv.Atoi(word)
			if err != nil || n < 0 || n > maxWarmup {
				return ScheduleChoice{}, fmt.Errorf("%w: warm-up %.20q, want 0 to %d", ErrBadPlan, word, maxWarmup)
			}
			list = append(list, n)
		}
		c.Warmups = append(c.Warmups, list)
	}
	if c.String() != text {
		return ScheduleChoice{}, fmt.Errorf("%w: course %.40q is not in canonical form", ErrBadPlan, text)
	}
	return c, nil
}
