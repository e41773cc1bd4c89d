package bench

import (
	"flag"
	"strings"
	"testing"
	"testing/synctest"
)

var predictions = flag.Int("predictions", 0, "compare the predicted steps of so many clusters with those that workers take, in virtual time")

// TestPredictionsOfManyClusters prints what `pnode bench planner --only predictions` measures, in virtual time: nothing but devices and
// lines takes any, whatever else the machine does.
func TestPredictionsOfManyClusters(t *testing.T) {
	if *predictions == 0 {
		t.Skip("takes minutes: ask for it with -predictions 40")
	}
	var seeds []uint64
	for i := range *predictions {
		seeds = append(seeds, uint64(i))
	}
	predicted(t, seeds...)
}

// predicted runs the plans of clusters, each in a bubble of its own, and prints the table.
func predicted(t *testing.T, seeds ...uint64) (all Predictions) {
	t.Helper()
	for _, seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			p, err := Predict(t.Context(), seed)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, p)
		})
	}
	var w strings.Builder
	all.text(&w)
	t.Log("\n" + w.String())
	return all
}

// TestStepsArePredicted within 3%: of a pipeline of two chunks a device, of replicas of several stages in split backwards with a tied
// embedding, and of some whose lines take longer to answer than to carry a layer's gradient.
func TestStepsArePredicted(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds of QUIC")
	}
	mean, worst := predicted(t, 7, 12, 23, 34).Errors()
	if mean > 0.015 || worst.Error() > 0.03 || worst.Error() < -0.03 {
		t.Errorf("mean error %.1f%%, worst %+.1f%% of seed %d", 100*mean, 100*worst.Error(), worst.Seed)
	}
}
