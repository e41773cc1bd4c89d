package node

import (
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pnode/pipeline/link"
	"pnode/planner"
)

// groupedRun has steps of so few micro-batches that filling and draining show.
func groupedRun() planner.RunSpec {
	run := rehearsedRun()
	run.Train.Micros, run.Train.Steps = 10, 26
	return run
}

// TestGroupsTrainAsOneStageDoes in virtual time: the planner has chunks go through groups, whose
// steps are shorter than in 1F1B. When a link's latency grows, all stages go on with other groups
// from the same step. No loss differs, in its last bit, from those of one stage.
func TestGroupsTrainAsOneStageDoes(t *testing.T) {
	const slowAfter = 5
	alone, plain := groupedRun(), groupedRun()
	alone.Train.Stages = 1
	plain.Train.Schedule = planner.ScheduleName
	want := map[planner.Step]uint64{}
	var usual time.Duration
	for _, run := range []planner.RunSpec{alone, plain} {
		synctest.Test(t, func(t *testing.T) {
			r := newRehearsal(t, run)
			r.train(func(planner.Step) {})
			if len(want) > 0 && !maps.Equal(r.losses, want) {
				t.Error("losses in 1f1b differ from those of one stage")
			}
			maps.Copy(want, r.losses)
			usual = r.mean(3, slowAfter)
		})
	}
	synctest.Test(t, func(t *testing.T) {
		r := newRehearsal(t, groupedRun())
		plans := r.train(func(step planner.Step) {
			if step != slowAfter {
				return
			}
			b, c := r.state.Plan.Replicas[0].Stages[1].Peer, r.state.Plan.Replicas[0].Stages[2].Peer
			slow := link.Shape{BytesPerS: 12_500_000, Delay: 90 * time.Millisecond}
			r.net.SetShape(b, c, slow)
			r.net.SetShape(c, b, slow)
		})
		if !maps.Equal(r.losses, want) {
			t.Errorf("losses of %d steps, some differ from those of %d of one stage", len(r.losses), len(want))
		}
		if len(plans) != 1 || len(plans[0].Replicas[0].Stages) < 2*len(plans[0].Seats()) {
			t.Fatalf("%d plans, courses by step: %q", len(plans), r.course)
		}
		changed := slices.IndexFunc(r.course, func(c string) bool { return c != r.course[0] })
		if changed < slowAfter || len(slices.Compact(slices.Clone(r.course))) != 2 {
			t.Fatalf("courses by step: %q", r.course)
		}
		fast, slow, again := r.mean(3, slowAfter), r.mean(slowAfter+2, changed), r.mean(changed+2, len(r.took))
		t.Logf("steps of %v, in 1f1b %v; %v after the link slowed down, %v from step %d on; %q", fast, usual, slow, again, changed+1, slices.Compact(r.course))
		if fast > usual || again > slow {
			t.Errorf("a step takes %v, in 1f1b %v, %v over the slow link and %v after the change", fast, usual, slow, again)
		}
	})
}
