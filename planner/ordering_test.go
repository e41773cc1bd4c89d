package planner

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/plan"
)

// asking is an input of like members for a run with a schedule.
func asking(text string, members, stages int) Input {
	in := big(members, 16)
	for l := range in.Costs {
		in.Costs[l].ParamBytes, in.Costs[l].SavedBytes = 8e6, 2e6
	}
	in.Run.Train.Schedule, in.Run.Train.Stages, in.Run.Train.Replicas, in.Run.Train.Micros = text, stages, 1, 8
	return in
}

func TestPlansHaveTheScheduleThatIsAsked(t *testing.T) {
	for _, c := range []struct {
		text             string
		replicas, stages int
	}{
		{"", 1, 8}, {"gpipe", 1, 4}, {"zb-h1", 1, 4}, {"interleaved:v=2", 1, 8}, {"zb-v", 1, 8}, {"hanayo:v=4", 1, 16}, {"chimera", 2, 4}, {"chimera:pairs=2", 4, 4},
	} {
		in := asking(c.text, 4, 4)
		p, _, err := Make(t.Context(), in)
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		want := c.text
		if want == "" {
			want = "zb-v" // the shortest step of all
		}
		if p.Schedule != want || len(p.Replicas) != c.replicas || len(p.Replicas[0].Stages) != c.stages || len(p.Workers()) != 4 {
			t.Errorf("%q: %s of %d replicas of %d stages on %d workers", c.text, p.Schedule, len(p.Replicas), len(p.Replicas[0].Stages), len(p.Workers()))
		}
		in.Previous, in.Generation = &p, p.Generation+1
		again, _, err := Make(t.Context(), in)
		if again.Generation = p.Generation; err != nil || !slices.Equal(again.Encode(), p.Encode()) {
			t.Errorf("%q: the plan after it differs (%v)", c.text, err)
		}
		if d, err := ShouldReplan(t.Context(), in, p); err != nil || d.Replan {
			t.Errorf("%q: a plan just made is to be replaced: %v, %v", c.text, d, err)
		}
	}
}

// TestSeveralGroupsHaveTheSchedule has four groups of two devices and eight copies on them.
func TestSeveralGroupsHaveTheSchedule(t *testing.T) {
	in := asking("chimera", 8, 2)
	in.Run.Train.Replicas, in.Run.Train.Micros = 4, 16
	p, _, err := Make(t.Context(), in)
	if err != nil || len(p.Replicas) != 8 || len(p.Workers()) != 8 {
		t.Fatalf("%d replicas on %d workers (%v)", len(p.Replicas), len(p.Workers()), err)
	}
	for r, pipe := range p.Replicas {
		twin := p.Replicas[r^1]
		if pipe.Micros != 2 || pipe.Stages[0].Worker() != twin.Stages[1].Worker() || pipe.Stages[1].Worker() != twin.Stages[0].Worker() {
			t.Errorf("replica %d is on %+v, its twin on %+v", r, pipe.Stages, twin.Stages)
		}
	}
	if groups, err := p.ReplicaGroups(); err != nil || len(groups) != 4 {
		t.Errorf("the plan has %d groups (%v)", len(groups), err)
	}
}

func TestSchedulesThatDoNotFitAreNamed(t *testing.T) {
	deep := model.Config{Vocab: 64, Context: 64, Blocks: 16, Heads: 2, Channels: 32}
	for _, c := range []struct {
		text           string
		members, stage int
		want           error
		says           string
	}{
		{"magic", 4, 4, schedule.ErrBadSpec, "zb-h1"},
		{"chimera", 3, 3, schedule.ErrBadShape, "even"},
		{"chimera:pairs=3", 4, 4, schedule.ErrBadShape, "pairs"},
		{"interleaved:v=16", 4, 4, schedule.ErrBadShape, "layers"},
		{"seq1f1b:n=3", 4, 4, model.ErrBadConfig, "segments is 3"},
		{"interleaved:v=2,f=3,b=8", 4, 4, schedule.ErrBadShape, "groups"},
	} {
		in := asking(c.text, c.members, c.stage)
		in.Run.Model = deep
		_, _, err := Make(t.Context(), in)
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s on %d: %v", c.text, c.members, err)
		}
		if err := CheckSchedule(c.text, 1, c.stage, deep, plan.Sums{Micros: 8, Groups: 8}); !errors.Is(err, c.want) {
			t.Errorf("%s on %d is not checked: %v", c.text, c.members, err)
		}
	}
}

// TestARunGoesOnWithAsManyCopies loses a node of two that run a pipeline both ways.
func TestARunGoesOnWithAsManyCopies(t *testing.T) {
	in := asking("chimera", 2, 2)
	p, _, err := Make(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	in.Previous, in.Generation, in.Members, in.Run.Train.Stages = &p, 2, in.Members[:1], 0
	rest, _, err := Make(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if rest.Schedule != plan.ScheduleName || len(rest.Replicas) != 2 || len(rest.Workers()) != 1 || rest.Replicas[0].Micros != p.Replicas[0].Micros {
		t.Errorf("on one node it is %+v", rest)
	}
	in.Previous, in.Generation = &rest, 3
	if again, _, err := Make(t.Context(), in); err != nil || len(again.Replicas) != 2 {
		t.Errorf("the plan after it has %d copies (%v)", len(again.Replicas), err)
	}
}

func TestDeepen(t *testing.T) {
	for _, c := range [][2][]int{{{1, 5, 4}, {2, 4, 4}}, {{3, 3}, {3, 3}}, {{1, 2}, {1, 2}}, {{1, 1, 6}, {2, 2, 4}}} {
		if got := deepen(c[0], 2); !slices.Equal(got, c[1]) {
			t.Errorf("%v becomes %v, want %v", c[0], got, c[1])
		}
	}
}

// TestTheAskedCutComesBack: once the devices are there again that were asked for, a plan without them is replaced, whatever its
// steps take.
func TestTheAskedCutComesBack(t *testing.T) {
	in := asking("", 2, 0)
	in.Members[1].Profile.Devices[0].MatMulFLOPS /= 1000 // nobody would choose it
	two := in.Members
	in.Members = two[:1]
	one, _, err := Make(t.Context(), in)
	if err != nil || len(one.Workers()) != 1 {
		t.Fatalf("%d workers, %v", len(one.Workers()), err)
	}
	in.Previous, in.Generation, in.Members = &one, one.Generation+1, two
	d, err := ShouldReplan(t.Context(), in, one)
	if err != nil || d.Replan {
		t.Errorf("a node a thousand times slower is to be used: %v, %v", d, err)
	}
	if spare := in.Members[1].Peer; len(d.Spares) != 1 || d.Spares[0].Peer != spare || d.Spares[0].With < 2*d.Change.Now || d.Spares[0].Without != d.Change.Now {
		t.Errorf("%+v, want a step of %s that takes much longer than %v", d.Spares, spare, d.Change.Now)
	}
	in.Run.Train.Stages = 2
	if d, err := ShouldReplan(t.Context(), in, one); err != nil || !d.Replan || !d.Pays(Outlook{}).Replan || d.Change != (Change{}) {
		t.Errorf("the asked cut does not come back: %v, %v", d, err)
	}
}
