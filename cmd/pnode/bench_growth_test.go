package main

import (
	"encoding/json"
	"math"
	"testing"

	"pnode/node/bench/growth"
)

// TestBenchGrowth measures two sizes of each axis, those of nodes and replicas with real processes.
func TestBenchGrowth(t *testing.T) {
	t.Parallel()
	p := start(t, "bench", "growth", "--json", "--rounds", "1", "--threads", "1", "--micros", "1,2", "--sequences", "16,32", "--layers", "1,2", "--nodes", "1,2", "--replicas", "1,2")
	p.finish(exitOK)
	var r growth.Report
	if err := json.Unmarshal(p.stdout.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	rows := map[growth.Axis][]growth.Row{}
	for _, row := range r.Rows {
		rows[row.Axis] = append(rows[row.Axis], row)
		if row.StepMS <= 0 || row.BoundMS <= 0 || math.Abs(row.Ratio-row.StepMS/row.BoundMS) > .2*row.Ratio || row.TokensPerS <= 0 || row.MemoryBytes <= 0 {
			t.Errorf("%+v", row)
		}
		c := row.Control
		if row.Axis.Processes() != (c != nil) {
			t.Fatalf("%+v", row)
		}
		if c == nil {
			continue
		}
		if several := row.Size > 1; c.CPUMS <= 0 || c.LeaderCPUMS <= 0 || c.StartS <= 0 || (c.WritesPerS > 0) != several || (c.BytesPerS > 0) != several || c.MostBytesPerS < c.BytesPerS || (c.DataBytes > 0) != several {
			t.Errorf("%s %d: %+v", row.Axis, row.Size, c)
		}
	}
	for _, name := range growth.Axes() {
		want := 2
		if growth.Axis(name) == growth.Local {
			want = 1 // one replica has nobody to meet
		}
		if got := len(rows[growth.Axis(name)]); got != want {
			t.Errorf("%d rows of %s, want %d", got, name, want)
		}
	}
}
