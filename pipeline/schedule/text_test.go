package schedule

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestActionText(t *testing.T) {
	for text, want := range map[string]Action{
		"2F0":           {Op: Forward, Stage: 2},
		"0B13":          {Op: Backward, Micro: 13},
		"r1/2I0":        {Op: BackwardInput, Replica: 1, Stage: 2},
		"2W7":           {Op: BackwardWeight, Stage: 2, Micro: 7},
		"2R0":           {Op: Recompute, Stage: 2},
		"r12/3SA4":      {Op: SendActivation, Replica: 12, Stage: 3, Micro: 4},
		"3RA4":          {Op: ReceiveActivation, Stage: 3, Micro: 4},
		"3SG4":          {Op: SendGradient, Stage: 3, Micro: 4},
		"3RG1048576":    {Op: ReceiveGradient, Stage: 3, Micro: MaxNumber},
		"2GATHER":       {Op: Gather, Stage: 2},
		"r1/2REDUCE":    {Op: Reduce, Replica: 1, Stage: 2},
		"1048576GATHER": {Op: Gather, Stage: MaxNumber},
		"2REDUCE":       {Op: Reduce, Stage: 2},
		"STEP":          {Op: Step},
	} {
		got, err := ParseAction(text)
		if err != nil || got != want || want.String() != text {
			t.Errorf("%q parses as %+v (%v), want %+v, which prints %q", text, got, err, want, want.String())
		}
	}
	for _, text := range []string{
		"", "F0", "2", "2F", "2F-1", "2F+1", "02F0", "2F00", "2X0", "2f0", "r0/2F0", "r1", "r1/", "r1/STEP", "2STEP",
		"STEP0", "2REDUCE0", "2F0 ", " 2F0", "2F1048577", "1048577F0", "99999999999999999999F0", "2SA", "2SR0", "r/2F0",
	} {
		if a, err := ParseAction(text); !errors.Is(err, ErrBadText) {
			t.Errorf("%q parses as %+v, %v", text, a, err)
		}
	}
}

func TestParseSchedule(t *testing.T) {
	const text = "0F0 0SA0\n\nr1/1F0 STEP\n"
	s, err := Parse(text)
	if err != nil || len(s.Workers) != 3 || len(s.Workers[1]) != 0 || s.String() != text {
		t.Fatalf("%q parses as %v, %v", text, s, err)
	}
	const parts = "segments 2\n0F0 0F1 0B1 0B0\n"
	if s, err := Parse(parts); err != nil || s.Segments != 2 || s.String() != parts {
		t.Errorf("%q parses as %v, %v", parts, s, err)
	}
	for _, bad := range []string{"segments 1\n", "segments 02\n", "segments 2", "segments \n", "segments 2 \n", "segments 2\nsegments 2\n", "0F0", "0F0  0B0\n", "0F0\r\n", " 0F0\n", strings.Repeat("\n", MaxWorkers+1)} {
		if s, err := Parse(bad); !errors.Is(err, ErrBadText) {
			t.Errorf("%.20q parses as %v, %v", bad, s, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"", "\n", "2F0 r1/2SA0 2REDUCE STEP\n", "0F0 0B0\n1F0 1B0\n", "0F1048576\n", "r1048576/0F0 0B0\n", "segments 2\n0F0 0F1 0B1 0B0\n", "segments 1048576\n0F0 0B0\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		if again := s.String(); again != text {
			t.Fatalf("%q prints as %q", text, again)
		}
		// Whatever parses must be judged without harm, and what is valid must run.
		if Validate(s, Limits{}) != nil {
			return
		}
		l, err := newLayout(s)
		if err != nil {
			t.Fatal(err)
		}
		timing := Timing{}
		for _, rl := range l.replicas {
			timing.Replicas = append(timing.Replicas, uniform(rl.stages, 1, 2, Hop{1, 1}))
		}
		if _, err := Simulate(s, timing); err != nil {
			t.Fatalf("%q is valid but does not run: %v", text, err)
		}
	})
}

func TestWorker(t *testing.T) {
	a, _ := GPipe(Shape{Stages: 2, Micros: 2})
	b, _ := GPipe(Shape{Stages: 3, Micros: 1, Replica: 1, FirstMicro: 2})
	s := Join(a, b)
	if got := (Schedule{Workers: [][]Action{s.Workers[s.Holder(1, 2)]}}).String(); got != "r1/2F2 r1/2B2\n" {
		t.Errorf("worker of replica 1 stage 2 runs %q", got)
	}
	if !slices.Equal(s.Workers[s.Holder(0, 1)], a.Workers[1]) {
		t.Errorf("worker of replica 0 stage 1 runs %v", s.Workers[s.Holder(0, 1)])
	}
	if got := s.Holder(0, 2); got >= 0 {
		t.Errorf("no worker holds replica 0 stage 2, got %v", got)
	}
}
