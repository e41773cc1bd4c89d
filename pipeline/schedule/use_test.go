package schedule

import (
	"slices"
	"testing"
)

// TestUseOfAStage: what a program keeps of each of its stages, and until when. Under 1F1B the
// send of the gradient frees a slot, zero-bubble schedules free it with the weight gradient,
// and between two stages of one worker the backward of the first does.
func TestUseOfAStage(t *testing.T) {
	for text, want := range map[string][]Use{
		"1f1b":          {{4, 1, false}, {3, 2, false}, {2, 2, false}, {1, 2, false}},
		"gpipe":         {{8, 1, false}, {8, 2, false}, {8, 2, false}, {8, 2, false}},
		"zb-h1":         {{4, 1, true}, {4, 2, true}, {4, 2, true}, {4, 2, true}},
		"zb-v":          {{4, 1, true}, {3, 2, true}, {2, 2, true}, {1, 2, true}},
		"breadth-first": {{8, 1, false}, {8, 2, false}, {3, 2, false}, {1, 2, false}},
	} {
		spec, err := ParseSpec(text)
		if err != nil {
			t.Fatal(err)
		}
		s, err := spec.Build(Group{Stages: 4, Shares: []Share{{Micros: 8}}})
		if err != nil {
			t.Fatal(err)
		}
		s = WithCommunication(s)
		var got []Use
		for st := range Stage(4) {
			got = append(got, UseOf(s.Worker(0, st), 0, st))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v\n%v", text, got, want, s)
		}
	}
}
