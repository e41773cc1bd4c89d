package plan

import (
	"errors"
	"strings"
	"testing"
)

func TestCourseText(t *testing.T) {
	for _, text := range []string{"zb-h1", "kfkb:k=3", "1f1b 3,2,1,0", "1f1b 1,0 0"} {
		if c, err := ParseScheduleChoice(text); err != nil || c.String() != text {
			t.Errorf("%q parses as %+v, %v", text, c, err)
		}
	}
	for _, text := range []string{"", "magic", "1f1b ", "1f1b 1,", "1f1b 01", "1f1b +1", "1f1b -1", "1f1b 1  1", "1f1b 1048577", "zb-h1\n", "1f1b " + strings.Repeat("1,", MaxScheduleChoiceBytes)} {
		if c, err := ParseScheduleChoice(text); !errors.Is(err, ErrBadPlan) {
			t.Errorf("%.40q parses as %+v, %v", text, c, err)
		}
	}
}

func TestAPlanTakesACourse(t *testing.T) {
	stages := make([]Placement, 2)
	p := Plan{Schedule: "1f1b", Replicas: []Pipeline{{Stages: stages, Warmups: []int{1, 0}}, {Stages: stages, Warmups: []int{2, 0}}}}
	if got := p.ScheduleChoice().String(); got != "1f1b 1,0 2,0" {
		t.Fatalf("the schedule is %q", got)
	}
	other, err := p.WithSchedule(ScheduleChoice{Schedule: "zb-h1"})
	if err != nil || other.ScheduleChoice().String() != "zb-h1" || p.ScheduleChoice().String() != "1f1b 1,0 2,0" {
		t.Fatalf("%v, %v", other, err)
	}
	if back, err := other.WithSchedule(p.ScheduleChoice()); err != nil || back.ScheduleChoice().String() != "1f1b 1,0 2,0" {
		t.Fatalf("%v, %v", back, err)
	}
	for _, c := range []ScheduleChoice{{Schedule: "1f1b"}, {Schedule: "zb-h1", Warmups: [][]int{{1, 0}, {1, 0}}}, {Schedule: "1f1b", Warmups: [][]int{{1, 0}}}, {Schedule: "1f1b", Warmups: [][]int{{1, 0}, {1}}}} {
		if _, err := p.WithSchedule(c); !errors.Is(err, ErrBadPlan) {
			t.Errorf("%v: %v", c, err)
		}
	}
}

func FuzzParseCourse(f *testing.F) {
	for _, text := range []string{"", "zb-h1", "1f1b 3,2,1,0 1,0", "1f1b 0"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if c, err := ParseScheduleChoice(text); err == nil && c.String() != text {
			t.Fatalf("%q prints as %q", text, c)
		}
	})
}
