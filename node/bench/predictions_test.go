package bench

import (
	"flag"
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
	t.Log("\n" + predictionParts().text(all))
	return all
}

// TestStepsArePredicted within 3%, and no device takes more memory than is counted for it: of a pipeline of two chunks a device, and of two and three
// replicas of several stages in split backwards, some of them with a tied embedding.
func TestStepsArePredicted(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds of QUIC")
	}
	all := predicted(t, 7, 12, 23, 29)
	mean, worst := all.Errors()
	if mean > 0.015 || worst.Error() > 0.03 || worst.Error() < -0.03 {
		t.Errorf("mean error %.1f%%, worst %+.1f%% of seed %d", 100*mean, 100*worst.Error(), worst.Seed)
	}
	if fullest := all.Fullest(); fullest.Held() > 1.01 || fullest.Held() < 0.9 {
		t.Errorf("seed %d: a device takes %d bytes of %d", fullest.Seed, fullest.PeakBytes, fullest.NeedBytes)
	}
}
