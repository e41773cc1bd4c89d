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

