package schedule

import (
	"errors"
	"strings"
	"testing"
)

func TestValidateRefuses(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"nothing", "", "no workers"},
		{"no forward", "0B0\n", "replica 0 of a schedule with 0 forwards"},
		{"no backward", "0F0\n", "0B0 is missing"},
		{"forward twice", "0F0 0F0 0B0\n", "0F0 comes twice"},
		{"backward twice", "0F0 0B0 0B0\n", "0B0 adds to the gradient after a later micro-batch"},
		{"backward first", "0B0 0F0\n", "0B0 comes before its forward"},
		{"missing micro-batch", "0F0 0B0 0F2 0B2\n", "replica 0 has 1 stages x 3 micro-batches"},
		{"missing stage", "0F0 0B0\n2F0 2B0\n", "replica 0 has 3 stages"},
		{"a gap in a stage", "0F0 0F1 0B0 0B1\n1F0 1B0\n", "replica 0 has 2 stages x 2"},
		{"missing replica", "r1/0F0 r1/0B0\n", "replica 1 of a schedule with 1 forwards"},
		{"two workers, one stage", "0F0 0B0\n0F1 0B1\n", "is about a stage of worker 0"},
		{"W before I", "0F0 0W0 0I0\n", "0W0 comes before its input gradient"},
		{"no W", "0F0 0I0\n", "0W0 is missing"},
		{"B and I", "0F0 0I0 0B0\n", "0B0 is a second backward"},
		{"recompute late", "0F0 0B0 0R0\n", "0R0 comes after its backward"},
		{"recompute early", "0R0 0F0 0B0\n", "0R0 comes before its forward"},
		{"gradient order", "0F0 0F1 0B1 0B0\n", "0B0 adds to the gradient after a later micro-batch"},
		{"a send to nobody", "0F0 0SA0 0B0\n", "0SA0 has no next stage on another worker"},
		{"a receive from nobody", "0RA0 0F0 0B0\n", "0RA0 has no previous stage on another worker"},
		{"no receive", "0F0 0SA0 0RG0 0B0\n1F0 1B0 1SG0\n", "1F0 comes before the receive of its input"},
		{"no send", "0F0 0RG0 0B0\n1RA0 1F0 1B0 1SG0\n", "0SA0 is missing"},
		{"no gradient sent", "0F0 0SA0 0RG0 0B0\n1RA0 1F0 1B0\n", "1SG0 is missing"},
		{"gradient sent early", "0F0 0SA0 0RG0 0B0\n1RA0 1F0 1SG0 1B0\n", "1SG0 comes before its backward"},
		{"send early", "0SA0 0F0 0RG0 0B0\n1RA0 1F0 1B0 1SG0\n", "0SA0 comes before its forward"},
		{"send twice", "0F0 0SA0 0SA0 0RG0 0B0\n1RA0 1F0 1B0 1SG0\n", "0SA0 comes twice"},
		{"deadlock", "0F0 0B0 0F1 0B1\n1F0 1F1 1B0 1B1\n", "worker 0 waits for ever at 0B0"},
		{"reduce early", "0F0 0REDUCE 0B0\n", "0B0 comes after the reduction of its stage"},
		{"reduce twice", "0F0 0B0 0REDUCE 0REDUCE\n", "0REDUCE comes twice"},
		{"reduce of one replica", "0F0 0B0 0REDUCE\nr1/0F1 r1/0B1\n", "r1/0REDUCE is missing"},
		{"half a sequence", "segments 2\n0F0 0B0\n", "no whole sequences of 2"},
		{"segment forward early", "segments 2\n0F1 0F0 0B1 0B0\n", "0F1 comes before the segment ahead of it"},
		{"segment backward early", "segments 2\n0F0 0F1 0B0 0B1\n", "0B0 comes before the segment behind it"},
		{"sequences swapped", "segments 2\n0F0 0F1 0F2 0F3 0B3 0B2 0B1 0B0\n", "0B1 adds to the gradient after a later micro-batch"},
		{"step early", "0F0 STEP 0B0\n", "STEP is not the last action"},
		{"step of one worker", "0F0 0B0 STEP\n1F0 1B0\n", "1 of 2 workers make a step"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, err := Parse(tc.text)
			if err != nil {
				t.Fatal(err)
			}
			if err = Validate(s, Limits{}); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}

func TestValidateAccepts(t *testing.T) {
	for name, text := range map[string]string{
		"split backward":           "0F0 0F1 0I0 0I1 0W0 0W1\n",
		"recompute":                "0F0 0R0 0B0\n",
		"gather":                   "0GATHER 0F0 0B0 0REDUCE STEP\n",
		"two chunks on one worker": "0F0 1F0 1B0 0B0\n",
		"chunks in a V": "0F0 0F1 3F0 3B0 3F1 0B0 3B1 0B1\n" +
			"1F0 2F0 1F1 2F1 2B0 1B0 2B1 1B1\n",
		"two directions": "0F0 r1/1F1 0B0 r1/1B1\nr1/0F1 1F0 1B0 r1/0B1\n",
	} {
		s, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, form := range []Schedule{s, WithCommunication(s)} {
			if err := Validate(form, Limits{}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestStuckGridMarksEveryWaitingAction(t *testing.T) {
	s, err := Parse("0F0 0B0 0F1 0B1\n1F0 1F1 1B0 1B1\n")
	if err != nil {
		t.Fatal(err)
	}
	want := ErrInvalid.Error() + ": worker 0 waits for ever at 0B0\n" +
		"   0 | 0F0 [0B0] 0F1 0B1\n" +
		"   1 | 1F0 [1F1] 1B0 1B1\n"
	if err := Validate(s, Limits{}); err == nil || err.Error() != want {
		t.Errorf("%v\nwant\n%s", err, want)
	}
	if _, err := Simulate(s, Timing{Replicas: []Costs{uniform(2, 1, 2, Hop{})}}); err == nil || err.Error() != want {
		t.Errorf("simulation: %v", err)
	}
}

func TestSimulateRefusesCostsThatDoNotFit(t *testing.T) {
	s, err := GPipe(Shape{Stages: 2, Micros: 2})
	if err != nil {
		t.Fatal(err)
	}
	for name, timing := range map[string]Timing{
		"none":         {},
		"stages":       {Replicas: []Costs{uniform(3, 1, 2, Hop{})}},
		"replicas":     {Replicas: []Costs{uniform(2, 1, 2, Hop{}), uniform(2, 1, 2, Hop{})}},
		"negative":     {Replicas: []Costs{uniform(2, -1, 2, Hop{})}},
		"overflow":     {Replicas: []Costs{uniform(2, 1, 2, Hop{Latency: MaxNanos + 1})}},
		"huge jitter":  {Replicas: []Costs{uniform(2, 1, 2, Hop{})}, Jitter: Jitter{Mean: MaxNanos + 1}},
		"minus jitter": {Replicas: []Costs{uniform(2, 1, 2, Hop{})}, Jitter: Jitter{Mean: -1}},
	} {
		if _, err := Simulate(s, timing); !errors.Is(err, ErrBadCosts) {
			t.Errorf("%s: %v, want ErrBadCosts", name, err)
		}
	}
}

// TestLinkSerialisesMessages has a first stage that is faster than its link.
func TestLinkSerialisesMessages(t *testing.T) {
	s, err := GPipe(Shape{Stages: 2, Micros: 3})
	if err != nil {
		t.Fatal(err)
	}
	line, err := Simulate(WithCommunication(s), Timing{Replicas: []Costs{uniform(2, 1, 2, Hop{Transfer: 5, Latency: 2})}})
	if err != nil {
		t.Fatal(err)
	}
	var starts []Nanos
	for _, sp := range line.Workers[1] {
		if sp.Action.Op == Forward {
			starts = append(starts, sp.Start)
		}
	}
	// Forwards end at 1, 2, 3; transfers end at 6, 11, 16; each arrives 2 later.
	if len(starts) != 3 || starts[0] != 8 || starts[1] != 13 || starts[2] != 18 {
		t.Errorf("the second stage starts at %v, want [8 13 18]", starts)
	}
}

func BenchmarkSimulate(b *testing.B) {
	s, err := Depth(Shape{Stages: 16, Micros: 256}, 2)
	if err != nil {
		b.Fatal(err)
	}
	timing := Timing{Replicas: []Costs{uniform(16, 1000, 2000, Hop{100, 1000})}}
	for b.Loop() {
		if _, err := Makespan(s, timing); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(16*256*2), "actions/op")
}
