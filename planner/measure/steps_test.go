package measure

import (
	"reflect"
	"testing"

	"pnode/planner/plan"
)

func TestMedianOfSamples(t *testing.T) {
	sample := func(step, forward, rate, rtt int64) Steps {
		return Steps{step, []Stage{{Replica: 1, Stage: 2, ForwardNanos: forward, BackwardNanos: 2 * forward, UpdateNanos: 7}}, []Link{{"a", "b", rate, rtt, rtt / 2, ""}}}
	}
	got := Median([]Steps{sample(900, 5, 0, 30), sample(100, 6, 80, 10), sample(110, 50, 90, 20), sample(120, 7, 70, 40)})
	if got.StepNanos != 110 || len(got.Stages) != 1 || got.Stages[0] != (Stage{Replica: 1, Stage: 2, ForwardNanos: 6, BackwardNanos: 12, UpdateNanos: 7}) || len(got.Links) != 1 || got.Links[0] != (Link{"a", "b", 80, 10, 5, ""}) {
		t.Errorf("got %+v", got)
	}
	if got := Median(nil); got.StepNanos != 0 || got.Stages != nil {
		t.Errorf("of nothing: %+v", got)
	}
}

func TestMedianOfTheNewestTransport(t *testing.T) {
	sample := func(over plan.Transport, rate int64) Steps {
		return Steps{Links: []Link{{From: "a", To: "b", BytesPerS: rate, RTTNanos: rate, Transport: over}}}
	}
	got := Median([]Steps{sample(plan.Relay, 1), sample(plan.Relay, 2), sample(plan.Relay, 3), sample(plan.QUIC, 7)}).Links
	if want := sample(plan.QUIC, 7).Links; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
