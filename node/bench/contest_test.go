package bench

import (
	"errors"
	"strings"
	"testing"

	"pnode/node/bench/nanogpt"
	"pnode/planner/plan"
)

// TestContest wants the published steps within 1%, each codec's with fewer bytes shorter, and micro-batches that are no part of a step named.
func TestContest(t *testing.T) {
	r, err := Contest(t.Context(), ContestOptions{MicroBatches: []int{8, 16}})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Entries) != 2 || len(r.Codecs) != len(plan.CodecNames()) {
		t.Fatalf("%d entries and %d codecs", len(r.Entries), len(r.Codecs))
	}
	for _, e := range r.Entries {
		if e.Error() < -0.01 || e.Error() > 0.01 {
			t.Errorf("%s is off by %+.2f%%", e.Name, 100*e.Error())
		}
	}
	for i, c := range r.Codecs {
		if i > 0 && c.Best.Step >= r.Codecs[i-1].Best.Step {
			t.Errorf("%s takes %d ns, %s %d", c.Codec, c.Best.Step, r.Codecs[i-1].Codec, r.Codecs[i-1].Best.Step)
		}
		if c.First.Schedule != nanogpt.Plain || c.First.MicroBatch != 8 || c.Best.Step > c.First.Step || len(c.Schedules) != len(nanogpt.Schedules()) {
			t.Errorf("%+v", c)
		}
	}
	// The contest's own entry in bf16, but for the four bytes that say how a message is written.
	if own, theirs := r.Codecs[1].First.Step, r.Entries[0].Step; own < theirs || own > theirs+1_000_000 {
		t.Errorf("bf16 takes %d ns, the entry in bf16 %d", own, theirs)
	}
	text := r.Text()
	for _, want := range []string{"100.475 s", "19.889 s", "1f1b, 8 sequences", "none below", "2112.0"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	for _, n := range []int{0, -1, 3, 1024} {
		if _, err := Contest(t.Context(), ContestOptions{MicroBatches: []int{8, n}}); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), "--micro-batch") {
			t.Errorf("micro-batches of %d: %v", n, err)
		}
	}
}
