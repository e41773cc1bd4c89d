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
		"1f1b":          {{4, 1, false, 0}, {3, 2, false, 0}, {2, 2, false, 0}, {1, 2, false, 0}},
		"gpipe":         {{8, 1, false, 0}, {8, 2, false, 0}, {8, 2, false, 0}, {8, 2, false, 0}},
		"zb-h1":         {{4, 1, true, 0}, {4, 2, true, 0}, {4, 2, true, 0}, {4, 2, true, 0}},
		"zb-v":          {{4, 1, true, 0}, {3, 2, true, 0}, {2, 2, true, 0}, {1, 2, true, 0}},
		"breadth-first": {{8, 1, false, 0}, {8, 2, false, 0}, {3, 2, false, 0}, {1, 2, false, 0}},
		"seq1f1b":       {{3, 2, true, 2}, {3, 4, true, 2}, {2, 4, true, 2}, {2, 4, true, 2}},
		"seq1f1b:n=4":   {{3, 4, true, 4}, {3, 8, true, 4}, {2, 8, true, 4}, {2, 8, true, 4}},
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
			got = append(got, s.Use(s.Holder(0, st), 0, st))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v\n%v", text, got, want, s)
		}
	}
}
