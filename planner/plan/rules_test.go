package plan

import (
	"errors"
	"slices"
	"testing"

	"pnode/pipeline/model"
)

func TestLevels(t *testing.T) {
	const none, outputs, block = model.RecomputeNothing, model.RecomputeOutputs, model.RecomputeBlock
	for _, tc := range []struct {
		levels []model.Recompute
		text   Levels
	}{
		{nil, ""},
		{[]model.Recompute{none, none}, ""},
		{[]model.Recompute{block}, "block"},
		{[]model.Recompute{block, block, outputs, none}, "block*2+outputs+none"},
		{[]model.Recompute{none, outputs, none}, "none+outputs+none"},
	} {
		if got := JoinLevels(tc.levels); got != tc.text {
			t.Errorf("%v prints as %q, want %q", tc.levels, got, tc.text)
		}
		if got, err := tc.text.Expand(len(tc.levels)); err != nil || !slices.Equal(got, tc.levels) {
			t.Errorf("%q of %d layers: %v, %v", tc.text, len(tc.levels), got, err)
		}
	}
	for _, text := range []Levels{"none*3", "block", "block*4", "block*03", "block+block*2", "block*1+none*2", "block*-1+none*4", "block*3+", "+block*3", "all*3", "block*99999999999999999999"} {
		if got, err := text.Expand(3); !errors.Is(err, ErrBadPlan) {
			t.Errorf("%q of 3 layers: %v, %v", text, got, err)
		}
	}
}

func FuzzExpandLevels(f *testing.F) {
	f.Add("block*2+none", 3)
	f.Add("", 0)
	f.Fuzz(func(t *testing.T, text string, layers int) {
		layers = min(max(layers, 0), 4096)
		levels, err := Levels(text).Expand(layers)
		if err == nil && (len(levels) != layers || string(JoinLevels(levels)) != text) {
			t.Fatalf("%q of %d layers: %v", text, layers, levels)
		}
	})
}
