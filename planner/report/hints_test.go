package report

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"pnode/pipeline/model"
	"pnode/planner"
	"pnode/planner/plan"
)

// pair is a run of two machines behind a slow line, neither of which holds the whole model.
func pair(t *testing.T, bytesPerS int64) planner.Input {
	t.Helper()
	run := plan.RunSpec{
		Model: model.Config{Vocab: 256, Context: 64, Blocks: 6, Channels: 128, Heads: 4},
		Train: plan.TrainSpec{Steps: 100, MicroBatch: 4, Micros: 8, Stages: 2, Replicas: 1},
	}
	in := planner.InputOf(run)
	for _, p := range []plan.PeerID{"a", "b"} {
		other := map[plan.PeerID]plan.PeerID{"a": "b", "b": "a"}[p]
		in.Members = append(in.Members, planner.Member{
			Peer: p, Name: map[plan.PeerID]string{"a": "desk", "b": "laptop"}[p],
			Profile: plan.Profile{
				Devices: []plan.DeviceProfile{{Name: "cpu", Model: "AMD EPYC", MatMulFLOPS: 50e9, AttentionFLOPS: 50e9, MemoryBytesPerS: 20e9, MemoryFreeBytes: 8 << 30}},
				Links:   []plan.LinkProfile{{Peer: other, BytesPerS: bytesPerS, RTTNanos: 1e6}},
			},
		})
	}
	return in
}

// TestHints: each is planned, names machines and devices, and is left out where it brings little.
func TestHints(t *testing.T) {
	slow, err := Hints(t.Context(), pair(t, 200e3))
	if err != nil {
		t.Fatal(err)
	}
	has := func(all []string, begin string) bool {
		return slices.ContainsFunc(all, func(s string) bool {
			return strings.HasPrefix(s, begin) && strings.Contains(s, " times as fast (steps of ")
		})
	}
	if !has(slow, "a faster line between desk and laptop, of 6.4 Mbit/s in place of 1.6 Mbit/s: ") {
		t.Errorf("behind a slow line: %q", slow)
	}
	if !slices.ContainsFunc(slow, func(s string) bool {
		return strings.HasPrefix(s, "a new run with --") && strings.Contains(s, "x tokens/s")
	}) {
		t.Errorf("no settings of a new run: %q", slow)
	}
	fast := pair(t, 1e9)
	fast.Run.Train.Stages, fast.Run.Train.Replicas = 0, 0
	quick, err := Hints(t.Context(), fast)
	if err != nil {
		t.Fatal(err)
	}
	if has(quick, "a faster line") || !has(quick, "one more machine like ") || !slices.ContainsFunc(quick, func(s string) bool { return strings.Contains(s, "(AMD EPYC) with 8.0 GiB: ") }) {
		t.Errorf("behind a quick line: %q", quick)
	}
	for i, text := range append(slow, quick...) {
		if !plan.Printable(text, 300) {
			t.Errorf("hint %d: %q", i, text)
		}
	}
	again, err := Hints(t.Context(), pair(t, 200e3))
	if err != nil || !slices.Equal(again, slow) {
		t.Errorf("again %q, first %q, %v", again, slow, err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := Hints(over, pair(t, 200e3)); !errors.Is(err, context.Canceled) || got != nil {
		t.Errorf("%q, %v", got, err)
	}
}
