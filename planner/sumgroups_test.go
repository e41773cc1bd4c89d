package planner

import (
	"strings"
	"testing"

	"pnode/pipeline/model"
	"pnode/planner/plan"
)

// TestSumGroupsOfANewRun: as many as the micro-batches, the replicas that are asked for and the founder's memory ask for.
func TestSumGroupsOfANewRun(t *testing.T) {
	gpt, err := model.Preset("gpt2-124m")
	if err != nil {
		t.Fatal(err)
	}
	const whole = int64(1) << 40
	for _, c := range []struct {
		micros, replicas, asked int
		schedule                string
		room                    int64
		want                    int
		says                    string
	}{
		{micros: 1, room: whole, want: 1, says: "1 group of micro-batches: up to 1 replica"},
		{micros: 4, room: whole, want: 4, says: "up to 4 replicas, with the same losses however many"},
		{micros: 15, room: whole, want: 15, says: "15 groups"},
		{micros: 16, room: whole, want: 8, says: "8 groups of micro-batches: up to 8 replicas, with the same losses however many; --sum-groups sets"},
		{micros: 16, replicas: 12, room: whole, want: 12, says: "up to 12 replicas"},
		{micros: 16, asked: 5, room: whole, want: 5, says: "5 groups"},
		{micros: 16, schedule: "chimera", room: whole, want: 8, says: "up to 4 replicas"},
		{micros: 16, room: 4 << 30, want: 4, says: "more would not fit here beside the model"},
		{micros: 16, room: 3500 << 20, want: 2, says: "up to 2 replicas"},
		{micros: 16, room: 2900 << 20, want: 1, says: "up to 1 replica,"},
		{micros: 16, replicas: 2, room: 2900 << 20, want: 2, says: "up to 2 replicas"},
		{micros: 16, room: 1 << 30, want: 2, says: "the model does not fit here alone"},
	} {
		in := InputOf(plan.RunSpec{Model: gpt, Train: plan.TrainSpec{
			Micros: c.micros, MicroBatch: 1, Replicas: c.replicas, SumGroups: c.asked, Schedule: c.schedule,
		}})
		got, says, err := SumGroups(in, c.room)
		if err != nil || got != c.want || !strings.Contains(says, c.says) {
			t.Errorf("%+v: %d, %q, %v", c, got, says, err)
		}
	}
}
