package ingest

import (
	"strings"
	"testing"

	"pnode/pipeline/model"
	"pnode/planner/plan"
)

func TestRepeatsWarnsOfShortTexts(t *testing.T) {
	for _, c := range []struct {
		sizeBytes int64
		width     int
		want      string
	}{
		{1 << 20, 0, ""},
		{30_720, 0, ""}, // 40 times
		{652, 0, "through this text 1885 times"},
		{60_000, 2, "through this text 41 times"},
		{0, 0, ""},
	} {
		spec := plan.RunSpec{Model: model.Config{Context: 128}, Train: plan.TrainSpec{Steps: 600, Micros: 4, MicroBatch: 4}, Data: plan.DataSpec{SizeBytes: c.sizeBytes}}
		if c.width > 0 {
			spec.Data.Tokens = &plan.TokenSpec{WidthBytes: c.width}
		}
		if got := Repeats(spec); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%d bytes: %q, want %q", c.sizeBytes, got, c.want)
		}
	}
}
