package planner

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/elastic"
	"pnode/planner/plan"
)

// wholeBackwards has input gradients take nearly all the time of backwards, as with adapters: then groups fill waits that weight
// gradients would fill otherwise.
func wholeBackwards(in Input) Input {
	in.Costs = slices.Clone(in.Costs)
	for l := range in.Costs {
		in.Costs[l].InputFLOPs, in.Costs[l].WeightFLOPs = in.Costs[l].InputFLOPs+in.Costs[l].WeightFLOPs-1, 1
		in.Costs[l].InputElementwise, in.Costs[l].WeightElementwise = min(in.Costs[l].InputElementwise+in.Costs[l].WeightElementwise, in.Costs[l].InputFLOPs), 0
	}
	return in
}

// groupedNodes are four like nodes with links of 100 Mbit/s and 10 ms in a run whose steps are
// short enough for filling and draining to show.
func groupedNodes(t *testing.T) (Input, plan.Plan, plan.Reasons) {
	t.Helper()
	in, _ := fourNodes(t)
	in = wholeBackwards(in)
	in.Previous, in.Generation, in.Start = nil, 1, 0
	in.Run.Train.Micros, in.Run.Train.Schedule = 12, ""
	for l := range in.Costs {
		in.Costs[l].BoundaryBytes = 50_000
	}
	plan, reasons, err := Make(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return in, plan, reasons
}

// TestGroupsAreChosenWhereFillingShows, and 1F1B where it is asked for.
func TestGroupsAreChosenWhereFillingShows(t *testing.T) {
	in, p, reasons := groupedNodes(t)
	spec, err := schedule.ParseSpec(p.Schedule)
	if err != nil || spec.Kind != elastic.GroupsKind || len(p.Workers()) != 4 || len(p.Replicas[0].Stages) != 4*spec.Chunks() {
		t.Fatalf("the plan is %s (%v)", p.Encode(), err)
	}
	checkPlan(t, in, p, reasons)
	in.Run.Train.Schedule = plan.ScheduleName
	asked, plain, err := Make(t.Context(), in)
	if err != nil || asked.Schedule != plan.ScheduleName {
		t.Fatalf("1f1b is asked for, the plan is %s (%v)", asked.Encode(), err)
	}
	if gain := slower(schedule.Nanos(stepNanos(reasons)), schedule.Nanos(stepNanos(plain))); gain < 10*kindGainPercent {
		t.Errorf("steps of %d and %d ns", stepNanos(reasons), stepNanos(plain))
	}
	i := slices.IndexFunc(reasons, func(r plan.Reason) bool { return r.Kind == plan.ReasonGroups })
	if i < 0 || reasons[i].Nanos != stepNanos(plain) || !strings.Contains(reasons[i].Text, "in groups (no others end sooner): filling and draining") {
		t.Errorf("no reason for groups of a step that would take %d: %v", stepNanos(plain), reasons)
	}
}

// TestGroupsKeepWithinMemory gives less and less of it, on all devices and on one: no device
// gets more than it has, and no step is longer than in 1F1B.
func TestGroupsKeepWithinMemory(t *testing.T) {
	in := wholeBackwards(lanedOf(t, "", 4, 1<<40))
	in.Run.Train.Micros = 8
	roomy, _, err := Make(t.Context(), in)
	if err != nil || roomy.Schedule == plan.ScheduleName {
		t.Fatalf("with all memory the plan is %s (%v)", roomy.Schedule, err)
	}
	need := allocated(t, in, roomy)
	plainly := 0
	for _, percent := range []int64{99, 92, 84, 70, 60} {
		for one := range 5 { // of the nodes, or all
			in := wholeBackwards(lanedOf(t, "", 4, 1<<40))
			in.Run.Train.Micros = 8
			for i := range in.Members {
				if i == one || one == 4 {
					in.Members[i].Profile.Devices[0].MemoryFreeBytes = slices.Max(need) * percent / 100
				}
			}
			p, reasons, err := Make(t.Context(), in)
			if errors.Is(err, ErrNoFit) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			for w, bytes := range allocated(t, in, p) {
				if free := memoryOf(t, in, p.Workers()[w]); bytes > free {
					t.Errorf("%d%%, node %d: %v takes %d bytes of %d under %s", percent, one, p.Workers()[w], bytes, free, p.Schedule)
				}
			}
			in.Run.Train.Schedule = plan.ScheduleName
			if _, plain, err := Make(t.Context(), in); err != nil || stepNanos(reasons) > stepNanos(plain) {
				t.Errorf("%d%%, node %d: a step of %d ns under %s, in 1f1b %d (%v)", percent, one, stepNanos(reasons), p.Schedule, stepNanos(plain), err)
			}
			if p.Schedule != roomy.Schedule {
				plainly++
			}
		}
	}
	if plainly == 0 {
		t.Error("memory makes no difference")
	}
}

// TestGroupsOfSeveralReplicas are the same ones, which takes the same number of micro-batches.
func TestGroupsOfSeveralReplicas(t *testing.T) {
	in := wholeBackwards(lanedOf(t, "", 4, 1<<40))
	in.Run.Train.Replicas, in.Run.Train.Stages, in.Run.Train.SumGroups = 2, 2, 2
	for _, micros := range []int{12, 13} {
		in.Run.Train.Micros = micros
		p, reasons, err := Make(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		checkPlan(t, in, p, reasons)
		if grouped := p.Schedule != plan.ScheduleName; grouped != (micros == 12) {
			t.Errorf("%d micro-batches on 2 replicas under %s", micros, p.Schedule)
		}
	}
}

// TestReselectChangesGroups has the link between two of four nodes get slow: the chunks stay, and
// go through other groups or depths, which a commit can change.
func TestReselectChangesGroups(t *testing.T) {
	in, p, _ := groupedNodes(t)
	in.Previous, in.Generation, in.Start = &p, 2, 17
	same, err := Reselect(in, p, Measured{StepNanos: 1})
	if err != nil || same.Then != same.Now || same.Plan.Schedule != p.Schedule {
		t.Errorf("nothing changed, then %+v (%v)", same, err)
	}
	links := slowMiddle(p)
	for i := range links {
		links[i].BytesPerS, links[i].RTTNanos = 12_500_000, 150e6
	}
	seen := measured(t, in, p, links)
	r, err := Reselect(in, p, seen)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Plan.Validate(len(in.Costs), in.Run.Train.Sums()); err != nil || !slices.Equal(r.Plan.Replicas[0].Stages, p.Replicas[0].Stages) {
		t.Fatalf("stages move: %s (%v)", r.Plan.Encode(), err)
	}
	if !r.InPlace || r.Plan.Schedule == p.Schedule || r.Now < r.Then*21/20 || r.Plan.Generation != 2 || r.Plan.Start != 17 {
		t.Errorf("%s instead of %s, %d instead of %d ns, in place %v", r.Plan.Schedule, p.Schedule, r.Then, r.Now, r.InPlace)
	}
	if _, err := r.Plan.Programs(); err != nil || !strings.Contains(r.Why, "other groups") {
		t.Errorf("%s: %v", r.Why, err)
	}
	if choice, err := plan.ParseScheduleChoice(r.Plan.ScheduleChoice().String()); err != nil || choice.String() != r.Plan.ScheduleChoice().String() {
		t.Errorf("the schedule is %v (%v)", choice, err)
	}
	again, err := Reselect(in, r.Plan, Measured{StepNanos: int64(r.Then), Links: links})
	if err != nil || again.Plan.Schedule != r.Plan.Schedule {
		t.Errorf("from there to %s (%v)", again.Plan.Schedule, err)
	}
}

// TestReselectGivesGroupsUp where a link carries too little for the messages of all chunks: other
// groups first, which cost nothing, then one chunk on each of the same devices, which moves
// layers. Steps have to be left to make up for that.
func TestReselectGivesGroupsUp(t *testing.T) {
	in, p, _ := groupedNodes(t)
	in.Previous, in.Generation = &p, 2
	links := slowMiddle(p)
	for i := range links {
		links[i].BytesPerS = 1_000_000
	}
	now, moves := p, 0
	for range 4 {
		seen := measured(t, in, now, links)
		r, err := Reselect(in, now, seen)
		if err != nil {
			t.Fatal(err)
		}
		if r.Plan.Schedule == now.Schedule {
			break
		}
		var few, many Watch
		for range driftWindows - 1 {
			few.Note(2, r, outlook(1))
			many.Note(2, r, outlook(1e6))
		}
		if a, b := few.Note(2, r, outlook(1)), many.Note(2, r, outlook(1e6)); a.Replan != r.InPlace || !b.Replan {
			t.Errorf("with one step left %+v, with many %+v", a, b)
		}
		if r.InPlace { // which gains little on a step that takes less than predicted
			seen.StepNanos = int64(r.Then) * 21 / 20
			if plain, err := Reselect(in, now, seen); err != nil || plain.InPlace || plain.Then >= r.Then {
				t.Errorf("a step of %d ns was seen: %+v (%v)", seen.StepNanos, plain, err)
			}
		}
		if now = r.Plan; !r.InPlace {
			moves++
			checkPlan(t, in, r.Plan, r.Reasons)
			if !slices.Equal(r.Plan.Workers(), p.Workers()) || !strings.Contains(r.Why, "one chunk a device") {
				t.Errorf("%s: %s", r.Plan.Encode(), r.Why)
			}
		}
		if r.Then >= r.Now {
			t.Errorf("%d instead of %d ns", r.Then, r.Now)
		}
	}
	if now.Schedule != plan.ScheduleName || moves != 1 {
		t.Errorf("after %d moves under %s", moves, now.Schedule)
	}
}

// TestReselectGroupsKeepsWithinMemory: a schedule never takes more than there is while stages
// change over to it one by one.
func TestReselectGroupsKeepsWithinMemory(t *testing.T) {
	in := wholeBackwards(lanedOf(t, "", 4, 1<<40))
	in.Run.Train.Micros = 8
	p, _, err := Make(t.Context(), in)
	if err != nil || p.Schedule == plan.ScheduleName {
		t.Fatalf("%s: %v", p.Schedule, err)
	}
	need := allocated(t, in, p)
	var seen Measured
	for _, a := range in.Members {
		for _, b := range in.Members {
			seen.Links = append(seen.Links, MeasuredLink{From: a.Peer, To: b.Peer, RTTNanos: 900e6})
		}
	}
	for w, worker := range p.Workers() {
		for i := range in.Members {
			if in.Members[i].Peer == worker.Peer {
				in.Members[i].Profile.Devices[0].MemoryFreeBytes = need[w]
			}
		}
	}
	r, err := Reselect(in, p, seen)
	if err != nil {
		t.Fatal(err)
	}
	for w, bytes := range allocated(t, in, r.Plan) {
		if bytes > need[w] {
			t.Errorf("%s takes %d bytes of %d", r.Plan.Schedule, bytes, need[w])
		}
	}
}

// TestGroupsAreNoSlower compares with 1F1B on clusters of any kind, and with what the programs
// take.
func TestGroupsAreNoSlower(t *testing.T) {
	grouped := 0
	for n := range casesOf(24, 12) {
		in := wholeBackwards(lanedOf(t, "", 2+n%3, 1<<40))
		in.Run.Train.Stages, in.Run.Train.Replicas = 0, 1
		in.Run.Train.Micros = 3 + n
		for i := range in.Members {
			in.Members[i].Profile.Devices[0].MatMulFLOPS += int64(i*n) * 3e8
			for j := range in.Members[i].Profile.Links {
				in.Members[i].Profile.Links[j].RTTNanos = int64(n%7) * 5e6
			}
		}
		p, reasons, err := Make(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		result, err := predicted(in, p)
		if err != nil || int64(result.Step) != stepNanos(reasons) {
			t.Errorf("predicted %d (%v), promised %d", result.Step, err, stepNanos(reasons))
		}
		in.Run.Train.Schedule = plan.ScheduleName
		if _, plain, err := Make(t.Context(), in); err != nil || stepNanos(reasons) > stepNanos(plain) {
			t.Errorf("%s: %d ns, in 1f1b %d (%v)", fmt.Sprint(in.Run.Train.Micros), stepNanos(reasons), stepNanos(plain), err)
		}
		if p.Schedule != plan.ScheduleName {
			grouped++
		}
	}
	if grouped == 0 {
		t.Error("no plan has groups")
	}
}

// TestGroupsOfShapesThatLookWorse: in 1F1B replicas of fewer stages are so much shorter that the
// long pipeline is not even simulated; in groups it is shorter still, and the reason says by
// how much.
func TestGroupsOfShapesThatLookWorse(t *testing.T) {
	in, _ := fourNodes(t)
	in = wholeBackwards(in)
	in.Previous, in.Generation, in.Start = nil, 1, 0
	in.Run.Train = plan.TrainSpec{Micros: 4}
	in.Members[0].Profile.Devices[0].MatMulFLOPS *= 2
	for i := range in.Members {
		for j := range in.Members[i].Profile.Links {
			in.Members[i].Profile.Links[j] = plan.LinkProfile{Peer: in.Members[i].Profile.Links[j].Peer, BytesPerS: 1e9, RTTNanos: 2e5}
		}
	}
	in.Costs = slices.Repeat(in.Costs[:1], 24)
	worse := 0
	for param := int64(1 << 18); param <= 1<<24; param += int64(casesOf(1<<18, 1<<20)) {
		for l := range in.Costs {
			in.Costs[l].ParamBytes, in.Costs[l].BoundaryBytes = param, 10_000
		}
		p, reasons, err := Make(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		checkPlan(t, in, p, reasons)
		i := slices.IndexFunc(reasons, func(r plan.Reason) bool { return r.Kind == plan.ReasonGroups || r.Kind == plan.ReasonOrders })
		if (p.Schedule == plan.ScheduleName) != (i < 0) {
			t.Fatalf("%s with reasons %v", p.Schedule, reasons)
		}
		if i >= 0 && reasons[i].Nanos*100 > stepNanos(reasons)*(100+estimatePercent) {
			worse++
		}
	}
	if worse == 0 {
		t.Error("no plan has groups of a shape that looks worse")
	}
}

// TestReselectGroupsKeepsWhatIsAsPromised, whatever the links show.
func TestReselectGroupsKeepsWhatIsAsPromised(t *testing.T) {
	in, plan, reasons := groupedNodes(t)
	in.Previous, in.Generation, in.Start = &plan, 2, 17
	r, err := Reselect(in, plan, Measured{StepNanos: stepNanos(reasons) * 11 / 10, Links: slowMiddle(plan)})
	if err != nil {
		t.Fatal(err)
	}
	if r.Plan.Schedule != plan.Schedule || r.Then != r.Now || r.Plan.Generation != 2 || r.Plan.Start != 17 || stepNanos(r.Reasons) != int64(r.Now) {
		t.Errorf("%+v", r)
	}
	var w Watch
	if d := w.Note(2, r, outlook(1e6)); d.Replan || !strings.Contains(d.Reason, "as predicted") {
		t.Errorf("%+v", d)
	}
}

// TestReselectGroupsCountsUpdates that were seen, as it does without groups.
func TestReselectGroupsCountsUpdates(t *testing.T) {
	in, p, _ := groupedNodes(t)
	in.Previous, in.Generation = &p, 2
	var steps []schedule.Nanos
	for _, update := range []int64{1, 1e9} {
		seen := Measured{StepNanos: 1}
		for s := range p.Replicas[0].Stages {
			seen.Stages = append(seen.Stages, MeasuredStage{Stage: plan.Stage(s), ForwardNanos: 60e6, BackwardNanos: 120e6, UpdateNanos: update})
		}
		r, err := Reselect(in, p, seen)
		if err != nil {
			t.Fatal(err)
		}
		steps = append(steps, r.Now)
	}
	chunks := len(p.Replicas[0].Stages) / len(p.Workers())
	if got, want := steps[1]-steps[0], schedule.Nanos(chunks)*(1e9-1); got != want {
		t.Errorf("updates of 1 s a stage, %d stages a device, lengthen a step by %d ns, want %d", chunks, got, want)
	}
}

// TestWrapAroundThatNobodyMeasuredIsTold: groups use the link from the last device to the first.
func TestWrapAroundThatNobodyMeasuredIsTold(t *testing.T) {
	in, p, _ := groupedNodes(t)
	workers := p.Workers()
	first, last := workers[0].Peer, workers[len(workers)-1].Peer
	for i := range in.Members {
		m := &in.Members[i]
		m.Profile.Links = slices.DeleteFunc(m.Profile.Links, func(l plan.LinkProfile) bool {
			return m.Peer == first && l.Peer == last || m.Peer == last && l.Peer == first
		})
	}
	c, err := searchFor(in, p)
	if err != nil {
		t.Fatal(err)
	}
	k, err := c.adopt(p)
	if err != nil {
		t.Fatal(err)
	}
	if n, worst := c.unmeasured(k.layout.Rows); n != 1 || worst != (cost.Link{BytesPerS: 12_500_000, RTTNanos: 10e6}) {
		t.Errorf("%d links between neighbours not measured, want 1, assumed %+v", n, worst)
	}
}
