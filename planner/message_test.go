package planner

import (
	"errors"
	"strings"
	"testing"

	"pnode/planner/plan"
)

// longMessages are four nodes whose messages between stages have twice as many bytes as links take.
func longMessages(t *testing.T) Input {
	t.Helper()
	in, _ := fourNodes(t)
	in.Previous = nil
	in.Run.Train.Replicas, in.Run.Train.Stages = 0, 0
	in.Run.Train.MicroBatch, in.Run.Model.Context, in.Run.Model.Channels = 64, 2048, 1024
	return in
}

func TestMessagesThatNoLinkTakes(t *testing.T) {
	for _, tt := range []struct {
		name     string
		change   func(*Input)
		stages   bool   // may be several
		in, want string // the codec between them, or why there is no plan
	}{
		{"as they are", func(*Input) {}, false, "", ""},
		{"in stages", func(in *Input) { in.Run.Train.Stages = 2 }, true, "", "micro_batch is 64: with a context of 2048 and 1024 channels 512.0 MiB cross between stages at once, 256.0 MiB can: want at most 31, with more micros, or codec bf16, which halves that, or stages 1"},
		{"half", func(in *Input) { in.Run.Train.Stages, in.Run.Train.MicroBatch = 2, 31 }, true, "f32", ""},
		{"half and one", func(in *Input) { in.Run.Train.Stages, in.Run.Train.MicroBatch = 2, 32 }, true, "", "want at most 31"},
		{"long", func(in *Input) { in.Run.Train.Stages, in.Run.Model.Context = 2, 1<<16 }, true, "", "want a shorter context, or codec"},
		{"bf16", func(in *Input) {
			in.Run.Train.Stages, in.Run.Train.MicroBatch, in.Run.Train.Codec = 2, 63, codecRule(t, "bf16")
		}, true, "bf16", ""},
		{"int8, which may be refused", func(in *Input) {
			in.Run.Train.Stages, in.Run.Train.Codec = 2, codecRule(t, "int8")
		}, true, "", "want at most 63, with more micros, or stages 1"},
		{"some codec", func(in *Input) {
			in.Run.Train.Stages, in.Run.Train.MicroBatch, in.Run.Train.Codec = 2, 63, codecRule(t, "auto")
		}, true, "bf16", ""},
		{"segments", func(in *Input) {
			in.Run.Train.Stages, in.Run.Train.Schedule, in.Run.Train.MicroBatch = 2, "seq1f1b:n=2", 62
		}, true, "f32", ""},
	} {
		in := longMessages(t)
		tt.change(&in)
		p, _, err := Make(t.Context(), in)
		if tt.want != "" {
			if !errors.Is(err, plan.ErrTooLong) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		for _, pipe := range p.Replicas {
			if len(pipe.Stages) > 1 != tt.stages || pipe.Stages[0].Codec != tt.in {
				t.Errorf("%s: %d stages, codec %q", tt.name, len(pipe.Stages), pipe.Stages[0].Codec)
			}
		}
	}
}

func codecRule(t *testing.T, text string) plan.CodecRule {
	t.Helper()
	rule, err := plan.ParseCodecRule(text)
	if err != nil {
		t.Fatal(err)
	}
	return rule
}
