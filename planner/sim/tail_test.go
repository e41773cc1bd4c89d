package sim

import (
	"testing"

	"pnode/pipeline/schedule"
)

// line returns a Send of which every message takes so long for each byte, then a latency of 10.
func line(each schedule.Nanos) func(from, to int, bytes int64) schedule.Hop {
	return func(from, to int, bytes int64) schedule.Hop {
		if from == to {
			return schedule.Hop{}
		}
		return schedule.Hop{Transfer: each * schedule.Nanos(bytes), Latency: 10}
	}
}

// passes returns intervals of stages that all begin at 0 and end at these times.
func passes(ends ...schedule.Nanos) (row []schedule.Interval) {
	for _, end := range ends {
		row = append(row, schedule.Interval{End: end})
	}
	return row
}

// whole returns a part of one stage of each replica with so many layers.
func whole(layers, replicas int, bytes int64) Part {
	p := Part{Layers: layers, Bytes: bytes, Rounds: 1}
	for range replicas {
		p.Stages, p.Before, p.Vectors = append(p.Stages, 0), append(p.Before, 0), append(p.Vectors, 1)
	}
	return p
}

// TestWhatFollowsThePasses has steps that can be told by hand.
func TestWhatFollowsThePasses(t *testing.T) {
	two := func(first, second Stage) [][]Stage { return [][]Stage{{first}, {second}} }
	for _, c := range []struct {
		name   string
		tail   Tail
		passes [][]schedule.Interval
		want   schedule.Nanos
	}{
		{"alone", Tail{Stages: [][]Stage{{{Update: 7}}}}, [][]schedule.Interval{passes(100)}, 107},
		{"the commit's way there and back", Tail{Stages: [][]Stage{{{Commit: 10, Update: 7, Report: 20}, {Device: 1}}}}, [][]schedule.Interval{passes(100, 90)}, 137},
		{ // the second stage is updated long before its first activation comes
			"an update in a wait",
			Tail{Stages: [][]Stage{{{}, {Device: 1, Update: 30}}}},
			[][]schedule.Interval{{{Begin: 0, End: 100}, {Begin: 40, End: 90}}},
			100,
		},
		{ // and here it is not
			"an update that is waited for",
			Tail{Stages: [][]Stage{{{}, {Device: 1, Update: 50}}}},
			[][]schedule.Interval{{{Begin: 0, End: 100}, {Begin: 40, End: 90}}},
			110,
		},
		{ // half of 40 bytes there and back, two latencies
			"one layer",
			Tail{Stages: two(Stage{Last: 50, Layers: 1}, Stage{Device: 1, Last: 50, Layers: 1}), Parts: []Part{whole(1, 2, 40)}, Send: line(1)},
			[][]schedule.Interval{passes(100), passes(100)},
			100 + 20 + 10 + 20 + 10,
		},
		{ // the first gradients leave at 60: the last one, of 5 bytes, is what the sum waits for
			"layers beside the last pass",
			Tail{Stages: two(Stage{Last: 50, Layers: 5}, Stage{Device: 1, Last: 50, Layers: 5}), Parts: []Part{whole(5, 2, 50)}, Send: line(1)},
			[][]schedule.Interval{passes(100), passes(100)},
			100 + 5 + 10 + 25 + 10,
		},
		{ // the other one's gradient and sum come beside the rest of the passes
			"a replica that is done before",
			Tail{Stages: two(Stage{Layers: 1}, Stage{Device: 1, Layers: 1}), Parts: []Part{whole(1, 2, 40)}, Send: line(1)},
			[][]schedule.Interval{passes(100), passes(20)},
			100 + 20 + 10 + 20 + 10,
		},
		{ // one uplink for two receivers
			"three replicas",
			Tail{
				Stages: [][]Stage{{{Layers: 1}}, {{Device: 1, Layers: 1}}, {{Device: 2, Layers: 1}}}, Parts: []Part{whole(1, 3, 60)}, Send: line(1),
			},
			[][]schedule.Interval{passes(100), passes(100), passes(100)},
			100 + 40 + 10 + 40 + 10,
		},
		{ // parameters are handed out before the next step, by 20 bytes and a latency
			"parts",
			Tail{
				Stages: two(Stage{Update: 5, Layers: 1}, Stage{Device: 1, Update: 5, Layers: 1}),
				Parts:  []Part{{Layers: 1, Bytes: 40, Later: 40, Rounds: 1, Stages: []int{0, 0}, Before: []int{0, 0}, Vectors: []int{1, 1}}}, Send: line(1),
			},
			[][]schedule.Interval{passes(100), passes(100)},
			5 + 20 + 10 + 100 + 20 + 10,
		},
		{
			"a tied embedding",
			Tail{Stages: [][]Stage{{{Layers: 1}, {Device: 1, Layers: 1}}}, Tied: 30, Send: line(1)},
			[][]schedule.Interval{passes(100, 50)},
			100 + 30 + 10,
		},
	} {
		if got := c.tail.After(c.passes); got != c.want {
			t.Errorf("%s: a step of %d, want %d", c.name, got, c.want)
		}
	}
}
