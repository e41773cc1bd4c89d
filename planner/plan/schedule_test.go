package plan

import (
	"errors"
	"strings"
	"testing"
)

func TestCourseText(t *testing.T) {
	for _, text := range []string{"zb-h1", "kfkb:k=3", "1f1b 3,2,1,0", "1f1b 1,0 0", "1f1b 0 0 12+4", "zb-h1 1+1+1"} {
		if c, err := ParseScheduleChoice(text); err != nil || c.String() != text {
			t.Errorf("%q parses as %+v, %v", text, c, err)
		}
	}
	for _, text := range []string{"", "magic", "1f1b ", "1f1b 1,", "1f1b 01", "1f1b +1", "1f1b -1", "1f1b 1  1", "1f1b 1048577", "zb-h1\n", "1f1b 4+4 0 0", "zb-h1 4+4 4+4", "zb-h1 4+", "zb-h1 04+4", "zb-h1 4+4,0", "1f1b " + strings.Repeat("1,", MaxScheduleChoiceBytes)} {
		if c, err := ParseScheduleChoice(text); !errors.Is(err, ErrBadPlan) {
			t.Errorf("%.40q parses as %+v, %v", text, c, err)
		}
	}
}

func TestAPlanTakesACourse(t *testing.T) {
	stages := make([]Placement, 2)
	p := Plan{Schedule: "1f1b", Replicas: []Pipeline{{Micros: 4, Stages: stages, Warmups: []int{1, 0}}, {FirstMicro: 4, Micros: 4, Stages: stages, Warmups: []int{2, 0}}}}
	if got := p.ScheduleChoice().String(); got != "1f1b 1,0 2,0 4+4" {
		t.Fatalf("the schedule is %q", got)
	}
	other, err := p.WithSchedule(ScheduleChoice{Schedule: "zb-h1"})
	if err != nil || other.ScheduleChoice().String() != "zb-h1 4+4" || p.ScheduleChoice().String() != "1f1b 1,0 2,0 4+4" {
		t.Fatalf("%v, %v", other, err)
	}
	if back, err := other.WithSchedule(p.ScheduleChoice()); err != nil || back.ScheduleChoice().String() != "1f1b 1,0 2,0 4+4" {
		t.Fatalf("%v, %v", back, err)
	}
	shared, err := p.WithSchedule(ScheduleChoice{Schedule: "zb-h1", Micros: []int{6, 2}})
	if err != nil || shared.ScheduleChoice().String() != "zb-h1 6+2" || shared.Replicas[1].FirstMicro != 6 || p.Replicas[1].FirstMicro != 4 {
		t.Fatalf("%v, %v", shared, err)
	}
	for _, c := range []ScheduleChoice{
		{Schedule: "1f1b"},
		{Schedule: "zb-h1", Warmups: [][]int{{1, 0}, {1, 0}}},
		{Schedule: "1f1b", Warmups: [][]int{{1, 0}}},
		{Schedule: "1f1b", Warmups: [][]int{{1, 0}, {1}}},
		{Schedule: "zb-h1", Micros: []int{8}},
		{Schedule: "zb-h1", Micros: []int{8, 0}},
		{Schedule: "zb-h1", Micros: []int{4, 5}},
		{Schedule: "zb-h1", Micros: []int{9, -1}},
	} {
		if _, err := p.WithSchedule(c); !errors.Is(err, ErrBadPlan) {
			t.Errorf("%v: %v", c, err)
		}
	}
}

func FuzzParseCourse(f *testing.F) {
	for _, text := range []string{"", "zb-h1", "1f1b 3,2,1,0 1,0", "1f1b 0", "1f1b 0 0 12+4"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if c, err := ParseScheduleChoice(text); err == nil && c.String() != text {
			t.Fatalf("%q prints as %q", text, c)
		}
	})
}
