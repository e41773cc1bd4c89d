package gossip

import (
	"slices"
	"testing"
	"time"

	"pnode/pipeline"
	"pnode/planner/plan"
)

// TestATrendKnowsWhatIsSlower feeds times, in percent of what is usual, and wants the steps at which something became slower.
func TestATrendKnowsWhatIsSlower(t *testing.T) {
	repeat := func(n int, times ...int64) []int64 { return slices.Repeat(times, n) }
	for name, c := range map[string]struct {
		times []int64
		want  []int
	}{
		"steady":                    {repeat(40, 100), nil},
		"a first step that is slow": {append([]int64{900}, repeat(20, 100, 110)...), nil},
		"too little is known":       {append(repeat(3, 100), repeat(3, 300)...), nil},
		"noise":                     {repeat(20, 100, 149, 90), nil},
		"two slow steps":            {repeat(10, 100, 100, 100, 100, 300, 300), nil},
		"three times slower":        {append(repeat(8, 100), repeat(30, 300)...), []int{10}},
		"half as slow again":        {append(repeat(8, 100), repeat(30, 150)...), []int{10}},
		"a third slower":            {append(repeat(12, 100, 105, 95), repeat(30, 135)...), []int{38}},
		"a third slower, too soon":  {append(repeat(3, 100, 105, 95), repeat(30, 135)...), nil},
		"a third, as before":        {append(repeat(4, 100, 140, 100, 100), repeat(8, 135)...), nil},
		"less than a fifth slower":  {append(repeat(20, 100), repeat(30, 119)...), nil},
		"slower and slower":         {slices.Concat(repeat(8, 100), repeat(8, 200), repeat(8, 400)), []int{10, 18}},
		"back, and slow again":      {slices.Concat(repeat(8, 100), repeat(8, 300), repeat(20, 100), repeat(8, 300)), []int{10, 38}},
		"in turns":                  {repeat(3, 100, 100, 100, 100, 300, 300, 300, 300), []int{6, 14, 22}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []int
			var follow trend
			for i, n := range c.times {
				if follow.note(n) {
					got = append(got, i)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("slower at %v, want %v", got, c.want)
			}
		})
	}
}

// TestSlowDownsAreToldOnce follows a stage and a link through the steps of a generation.
func TestSlowDownsAreToldOnce(t *testing.T) {
	d, step := NewSlowDowns(), plan.Step(0)
	after := func(g plan.Generation, steps int, perMicro time.Duration, micros int, bytesPerS int64) (told plan.Step) {
		for range steps {
			step++
			r := pipeline.StepResult{
				Step: step, Total: 10 * time.Second, Added: [][]plan.Micro{make([]plan.Micro, micros)},
				Stages: []pipeline.StageTimes{{Backward: time.Duration(micros) * perMicro}},
			}
			d.Note(g, r, []LinkRate{{Peer: "b", BytesPerS: bytesPerS}}, Work{Micros: 8, MessageBytes: 1 << 20})
			select {
			case <-d.News():
				told = step
			default:
			}
		}
		return told
	}
	const fast, slow = 100 << 20, 1 << 20 // 10 ms and 1 s a message
	if told := after(1, 6, time.Second, 8, fast); told != 0 {
		t.Fatalf("nothing is slower, told at step %d", told)
	}
	if told := after(1, 6, time.Second, 24, fast); told != 0 {
		t.Fatalf("three times as many micro-batches count as slower at step %d", told)
	}
	if told := after(1, 3, 2*time.Second, 8, fast); told != 15 {
		t.Fatalf("a slower stage was told at step %d, want 15", told)
	}
	b := Heartbeat{Generation: 1, Step: 15, Stages: []StageTimes{{BackwardNanos: 1}}}
	if d.Fill(&b); b.Slower != 15 || b.Stages[0].BackwardNanos != 16e9 {
		t.Errorf("the heartbeat says %d, %+v", b.Slower, b.Stages)
	}
	before := Heartbeat{Generation: 1, Step: 14}
	if d.Fill(&before); before.Slower != 0 {
		t.Errorf("a heartbeat of the step before says %d", before.Slower)
	}
	later, other := Heartbeat{Generation: 1, Step: 16, Stages: []StageTimes{{BackwardNanos: 1}}}, Heartbeat{Generation: 2, Step: 15}
	if d.Fill(&later); later.Slower != 15 || later.Stages[0].BackwardNanos != 1 {
		t.Errorf("the heartbeat after it says %d, %+v", later.Slower, later.Stages)
	}
	if d.Fill(&other); other.Slower != 0 {
		t.Errorf("another generation's heartbeat says %d", other.Slower)
	}
	if told := after(1, 5, 2*time.Second, 8, fast/3); told != 0 {
		t.Errorf("a link that costs little more was told at step %d", told)
	}
	if told := after(1, 5, 2*time.Second, 8, slow); told != step-2 {
		t.Errorf("a slow link was told at step %d, want %d", told, step-2)
	}
	if told := after(2, 3, 9*time.Second, 8, slow); told != 0 {
		t.Errorf("a generation of which nothing is known was told to be slower at step %d", told)
	}
	if bad := (Heartbeat{Step: 3, Slower: 4}); bad.check() == nil {
		t.Error("a heartbeat that was slower by a later step passes")
	}
}

// TestSlowInnerSteps are told before an outer step counts them.
func TestSlowInnerSteps(t *testing.T) {
	d, replica := NewSlowDowns(), plan.Replica(1)
	var last pipeline.StepResult
	for step := plan.Step(11); step <= 20; step++ {
		took := time.Second
		if step > 17 {
			took *= 3
		}
		last = pipeline.StepResult{Step: step, Replica: &replica, Total: took, Added: [][]plan.Micro{{0}}, Stages: []pipeline.StageTimes{{Backward: took}}}
		d.Note(4, last, nil, Work{Micros: 1})
	}
	b := Heartbeat{Generation: 4, Step: 10, Inner: []InnerStep{{Replica: replica, Step: 20}}, Stages: []StageTimes{TimesOf(last.Stages[0])}}
	if d.Fill(&b); b.Slower != 20 || b.check() != nil {
		t.Errorf("slower by step %d: %v", b.Slower, b.check())
	}
}
