package planner

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/partition"
	"pnode/planner/plan"
)

// fourNodes are a pipeline of four like nodes with links of 100 Mbit/s and 10 ms; a stage
// takes 60 ms a micro-batch, a message 16 ms. The run asks for 1F1B.
func fourNodes(t *testing.T) (Input, plan.Plan) {
	t.Helper()
	in := Input{Generation: 1, Run: plan.RunSpec{Run: "four", Train: plan.TrainSpec{Micros: 32, Replicas: 1, Stages: 4, Schedule: plan.ScheduleName}}}
	for range 8 {
		in.Costs = append(in.Costs, model.LayerCost{ForwardFLOPs: 1e9, InputFLOPs: 1e9, WeightFLOPs: 1e9, ParamBytes: 4e3, SavedBytes: 1e6, BoundaryBytes: 200_000})
	}
	for _, a := range []plan.PeerID{"a", "b", "c", "d"} {
		m := Member{Peer: a, Profile: plan.Profile{Devices: []plan.DeviceProfile{{Name: "cpu", MatMulFLOPS: 1e11, MemoryBytesPerS: 1e12, MemoryFreeBytes: 1 << 30}}}}
		for _, b := range []plan.PeerID{"a", "b", "c", "d"} {
			if a != b {
				m.Profile.Links = append(m.Profile.Links, plan.LinkProfile{Peer: b, BytesPerS: 12_500_000, RTTNanos: 10e6})
			}
		}
		in.Members = append(in.Members, m)
	}
	plan, _, err := Make(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	in.Previous, in.Generation, in.Start = &plan, 2, 17
	return in, plan
}

// slowMiddle is the link between stages 1 and 2 at 20 Mbit/s and 120 ms.
func slowMiddle(plan plan.Plan) []MeasuredLink {
	b, c := plan.Replicas[0].Stages[1].Peer, plan.Replicas[0].Stages[2].Peer
	return []MeasuredLink{{From: b, To: c, BytesPerS: 2_500_000, RTTNanos: 120e6}, {From: c, To: b, BytesPerS: 2_500_000, RTTNanos: 120e6}}
}

// outlook returns one of a run without departures, and without an earlier change.
func outlook(left plan.Step) Outlook { return Outlook{Left: left, Lasts: math.MaxInt64} }

// measured returns what the plan would show with such links, computing as profiled.
func measured(t *testing.T, in Input, plan plan.Plan, links []MeasuredLink) Measured {
	t.Helper()
	r, err := Reselect(in, plan, Measured{StepNanos: 1, Links: links})
	if err != nil {
		t.Fatal(err)
	}
	return Measured{StepNanos: int64(r.Now), Links: links}
}

func TestReselectDeepensThePipelineOverASlowLink(t *testing.T) {
	in, plan := fourNodes(t)
	seen := measured(t, in, plan, slowMiddle(plan))
	r, err := Reselect(in, plan, seen)
	if err != nil {
		t.Fatal(err)
	}
	want := slices.Clone(plan.Replicas[0].Stages)
	if r.Plan.Generation != 2 || r.Plan.Start != 17 || !slices.Equal(r.Plan.Replicas[0].Stages, want) {
		t.Fatalf("stages move or the generation is wrong: %s", r.Plan.Encode())
	}
	if err := r.Plan.Validate(len(in.Costs), in.Run.Train.Sums()); err != nil {
		t.Fatal(err)
	}
	before, after := plan.Replicas[0].Warmups, r.Plan.Replicas[0].Warmups
	if after[0] <= before[0] || after[1] <= before[1] || after[2] != before[2] || after[3] != 0 {
		t.Errorf("warm-ups went from %v to %v", before, after)
	}
	// A message takes 80 ms now, more than a stage computes: that bounds the period.
	if least := 32 * schedule.Nanos(80e6); r.Then < least || r.Then > least+least/3 || r.Now < r.Then*5/4 {
		t.Errorf("steps of %d and %d ns, no step can take less than %d", r.Now, r.Then, least)
	}
	for _, part := range []string{"predicted were", "link replica 0 stage 1", "at 20.0 Mbit/s: 80.00 ms a micro-batch in f32", "put more layers on a stage"} {
		if !strings.Contains(r.Why, part) {
			t.Errorf("%q does not say %q", r.Why, part)
		}
	}
}

// TestReselectUsesTheTimesOfStages has stage 2 compute for twice as long as its profile says.
func TestReselectUsesTheTimesOfStages(t *testing.T) {
	in, p := fourNodes(t)
	seen := Measured{StepNanos: 4e9}
	for s := range 4 {
		each := int64(32 * 20e6)
		if s == 2 {
			each *= 2
		}
		seen.Stages = append(seen.Stages, MeasuredStage{Stage: plan.Stage(s), ForwardNanos: each, BackwardNanos: 2 * each})
	}
	r, err := Reselect(in, p, seen)
	if err != nil {
		t.Fatal(err)
	}
	if least := 32 * schedule.Nanos(120e6); r.Then < least || r.Then > least+least/5 || r.Promised > least*2/3 {
		t.Errorf("promised %d, then %d, stage 2 alone takes %d", r.Promised, r.Then, least)
	}
	if !strings.Contains(r.Why, "computing: replica 0 stage 2") {
		t.Error(r.Why)
	}
}

func TestReselectLeavesOtherSchedulesAlone(t *testing.T) {
	in, p := fourNodes(t)
	p.Schedule = "gpipe"
	if _, err := Reselect(in, p, Measured{}); !errors.Is(err, ErrNotElastic) {
		t.Error(err)
	}
	in.Members = in.Members[1:]
	p.Schedule = plan.ScheduleName
	if _, err := Reselect(in, p, Measured{}); !errors.Is(err, plan.ErrBadPlan) {
		t.Error(err)
	}
}

// TestWatchSwitchesOnceAndStaysThere feeds windows of what the running schedule shows, with
// a tenth of noise: nothing happens while links are as profiled; three windows after the
// link has changed the schedule does, and then it stays.
func TestWatchSwitchesOnceAndStaysThere(t *testing.T) {
	in, plan := fourNodes(t)
	rng := rand.New(rand.NewPCG(41, 42))
	fast := []MeasuredLink{{From: "b", To: "c", BytesPerS: 12_500_000, RTTNanos: 10e6}, {From: "c", To: "b", BytesPerS: 12_500_000, RTTNanos: 10e6}}
	var w Watch
	switched := []int{}
	for window := range 90 {
		links := slowMiddle(plan)
		if window < 30 {
			links = slices.Clone(fast)
		}
		for i := range links {
			links[i].BytesPerS += links[i].BytesPerS * (rng.Int64N(21) - 10) / 100
			links[i].RTTNanos += links[i].RTTNanos * (rng.Int64N(21) - 10) / 100
		}
		seen := measured(t, in, plan, links)
		seen.StepNanos += seen.StepNanos * (rng.Int64N(21) - 10) / 100
		r, err := Reselect(in, plan, seen)
		if err != nil {
			t.Fatal(err)
		}
		if d := w.Note(plan.Generation, r, outlook(1000)); d.Replan {
			switched = append(switched, window)
			plan = r.Plan
			in.Generation++
		}
	}
	if !slices.Equal(switched, []int{32}) {
		t.Errorf("switched in windows %v, want [32]", switched)
	}
}

// TestWatchDoesNotFlap interrupts every two windows that speak for a change.
func TestWatchDoesNotFlap(t *testing.T) {
	bad := Reselection{Promised: 100e6, Measured: 400e6, Now: 400e6, Then: 100e6, Why: "slow"}
	good := Reselection{Promised: 100e6, Measured: 105e6, Now: 105e6, Then: 100e6}
	var w Watch
	for i := range 300 {
		r := bad
		if i%3 == 2 {
			r = good
		}
		if d := w.Note(1, r, outlook(1e6)); d.Replan {
			t.Fatalf("changed in window %d: %s", i, d.Reason)
		}
	}
	for i := range 3 {
		if d := w.Note(1, bad, outlook(1e6)); d.Replan != (i == 2) {
			t.Errorf("window %d: %+v", i, d)
		}
	}
	if d := w.Note(2, bad, outlook(1e6)); d.Replan {
		t.Error("windows of another generation count")
	}
	for what, r := range map[string]Reselection{
		"no gain":           {Promised: 100e6, Measured: 400e6, Now: 400e6, Then: 390e6},
		"a promise too far": {Promised: 100e6, Measured: 150e6, Now: 400e6, Then: 140e6},
		"nearly over":       {Promised: 100e6, Measured: 400e6, Now: 400e6, Then: 100e6},
	} {
		var w Watch
		for range 9 {
			if d := w.Note(1, r, outlook(4)); d.Replan {
				t.Errorf("%s: %+v", what, d)
			}
		}
	}
}

// TestReselectKeepsTheCodec that the run began with, though a link became so slow that another one would hide its messages.
func TestReselectKeepsTheCodec(t *testing.T) {
	in, p := fourNodes(t)
	var err error
	if in.Run.Train.Codec, err = plan.ParseCodecRule("auto"); err != nil {
		t.Fatal(err)
	}
	p.Codec = "f32"
	r, err := Reselect(in, p, measured(t, in, p, slowMiddle(p)))
	if err != nil {
		t.Fatal(err)
	}
	var codecs []string
	for _, place := range r.Plan.Replicas[0].Stages {
		codecs = append(codecs, place.Codec)
	}
	if !slices.Equal(codecs, []string{"f32", "f32", "f32", ""}) || r.Plan.Codec != "f32" {
		t.Errorf("codecs %v, of the plan %q", codecs, r.Plan.Codec)
	}
}

// TestThePlanAfterALiveSwitchKeepsIt: a plan that is made because a node came or went begins
// with the schedule to which the steps had changed, not with that of the profiles.
func TestThePlanAfterALiveSwitchKeepsIt(t *testing.T) {
	in, plan := fourNodes(t)
	var slow []MeasuredLink // all: no other order is better
	for _, from := range plan.Peers() {
		for _, to := range plan.Peers() {
			if from != to {
				slow = append(slow, MeasuredLink{From: from, To: to, BytesPerS: 2_500_000, RTTNanos: 120e6})
			}
		}
	}
	seen := measured(t, in, plan, slow)
	r, err := Reselect(in, plan, seen)
	if err != nil {
		t.Fatal(err)
	}
	forgetful, _, err := Make(t.Context(), in)
	if err != nil || forgetful.ScheduleChoice().String() == r.Plan.ScheduleChoice().String() {
		t.Fatalf("the schedule without what was seen is %s (%v)", forgetful.ScheduleChoice(), err)
	}
	in.Links = seen.Links
	next, _, err := Make(t.Context(), in)
	if err != nil || !slices.Equal(next.Replicas[0].Stages, r.Plan.Replicas[0].Stages) || next.ScheduleChoice().String() != r.Plan.ScheduleChoice().String() {
		t.Errorf("the plan is %s (%v), the steps went on %s", next.Encode(), err, r.Plan.ScheduleChoice())
	}
	if d, err := ShouldReplan(t.Context(), in, r.Plan); err != nil || d.Replan {
		t.Errorf("the plan on its schedule is to be replaced: %+v, %v", d, err)
	}
}

// TestReselectLeavesWhatIsAhead: a stage that restores less ahead of its gradients than it has
// room for goes on so where that makes the period no longer, since its memory would have to be
// taken anew; also where its stages were seen to be much faster than their profiles say.
func TestReselectLeavesWhatIsAhead(t *testing.T) {
	in := lanedOf(t, plan.ScheduleName, 4, 1<<40)
	in.Run.Train.Recompute = plan.Recompute(model.RecomputeBlock)
	p, _, err := Make(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	var seen Measured
	for s := range p.Replicas[0].Stages {
		place := &p.Replicas[0].Stages[s]
		if last := s == 3; (place.Ahead == 0) != last {
			t.Fatalf("stage %d of 4 has %d layers ahead", s, place.Ahead)
		}
		place.Ahead = min(place.Ahead, 1)
		seen.Stages = append(seen.Stages, MeasuredStage{Stage: plan.Stage(s), ForwardNanos: 16e6, BackwardNanos: 16e3})
	}
	in.Previous, in.Generation = &p, 2
	for _, seen := range []Measured{{StepNanos: 1}, {StepNanos: 1, Stages: seen.Stages}} {
		r, err := Reselect(in, p, seen)
		if err != nil {
			t.Fatal(err)
		}
		if !r.InPlace || r.Then > r.Now || r.Plan.Replicas[0].Stages[0].Ahead != 1 {
			t.Errorf("in place: %v, %d instead of %d: %+v", r.InPlace, r.Then, r.Now, r.Plan.Replicas[0])
		}
	}
}

// twoReplicas are two like nodes with the whole model each, and what they show when one takes so many times as long.
func twoReplicas(t *testing.T) (Input, plan.Plan, func(slow int, times int64, p plan.Plan) Measured) {
	t.Helper()
	in := shardInput(1, 1<<30)
	in.Run.Train.SumGroups = 8
	p, _, err := Make(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	in.Previous, in.Generation, in.Start = &p, 2, 17
	return in, p, func(slow int, times int64, p plan.Plan) Measured {
		seen := Measured{}
		for r, pipe := range p.Replicas {
			each := int64(20e6)
			if r == slow {
				each *= times
			}
			all := each * int64(pipe.Micros)
			seen.StepNanos = max(seen.StepNanos, all)
			seen.Stages = append(seen.Stages, MeasuredStage{Replica: plan.Replica(r), ForwardNanos: all / 4, BackwardNanos: all - all/4})
		}
		return seen
	}
}

// TestReselectGivesAStragglerFewerMicroBatches: the replica that became three times slower gets a fourth of the step, in
// whole sum groups and in place; back at its speed it gets its half again, though steps take what was predicted.
func TestReselectGivesAStragglerFewerMicroBatches(t *testing.T) {
	in, p, seen := twoReplicas(t)
	steady, err := Reselect(in, p, seen(1, 1, p))
	if err != nil || steady.Reshared || steady.Plan.ScheduleChoice().String() != "1f1b 0 0 8+8" {
		t.Fatalf("as planned: %+v, %v", steady, err)
	}
	r, err := Reselect(in, p, seen(1, 3, p))
	if err != nil {
		t.Fatal(err)
	}
	if !r.Reshared || !r.InPlace || r.Plan.ScheduleChoice().String() != "1f1b 0 0 12+4" || r.Then > r.Now*6/10 {
		t.Fatalf("a slow replica: %s, %d instead of %d, %+v", r.Plan.ScheduleChoice(), r.Then, r.Now, r)
	}
	if err := r.Plan.Validate(len(in.Costs), in.Run.Train.Sums()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(r.Why, "other shares of the micro-batches take") || !strings.Contains(r.Why, "[12 4] instead of [8 8]") {
		t.Error(r.Why)
	}
	again, err := Reselect(in, r.Plan, seen(1, 3, r.Plan))
	if err != nil || again.Reshared {
		t.Errorf("it changes again: %+v, %v", again, err)
	}
	back, err := Reselect(in, r.Plan, seen(1, 1, r.Plan))
	if err != nil || !back.Reshared || back.Plan.ScheduleChoice().String() != "1f1b 0 0 8+8" {
		t.Errorf("at its speed again: %s, %v", back.Plan.ScheduleChoice(), err)
	}
}

// TestOtherSharesNeedRoomForTheirSums takes memory away until the running shares fit alone: 12 micro-batches at the end of a
// step need room for one more sum than 8.
func TestOtherSharesNeedRoomForTheirSums(t *testing.T) {
	in, p, seen := twoReplicas(t)
	var fits []bool // other shares, from much memory to little
	for free := int64(32 << 20); ; free -= 256 << 10 {
		in.Members[0].Profile.Devices[0].MemoryFreeBytes, in.Members[1].Profile.Devices[0].MemoryFreeBytes = free, free
		r, err := Reselect(in, p, seen(0, 3, p))
		if no := (*partition.NoFit)(nil); errors.As(err, &no) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(fits) == 0 || fits[len(fits)-1] != r.Reshared {
			fits = append(fits, r.Reshared)
		}
	}
	if !slices.Equal(fits, []bool{true, false}) {
		t.Errorf("other shares with less and less memory: %v", fits)
	}
}

// TestWatchAnswersASlowDownAtOnceAndIsSlowToGoBack: a slow-down is answered by its first comparison; the way back needs
// windows in a row, twice as many after each slow-down.
func TestWatchAnswersASlowDownAtOnceAndIsSlowToGoBack(t *testing.T) {
	slow := Reselection{Promised: 100e6, Measured: 300e6, Now: 300e6, Then: 150e6, InPlace: true, Reshared: true}
	back := Reselection{Promised: 150e6, Measured: 150e6, Now: 150e6, Then: 100e6, InPlace: true, Reshared: true}
	var w Watch
	for turn, want := range []int{6, 12, 24, 48, 48} {
		if d := w.Slowed(1, slow); !d.Replan {
			t.Fatalf("turn %d: %s", turn, d.Reason)
		}
		w.Changed()
		windows := 1
		for !w.Note(1, back, outlook(1000)).Replan {
			windows++
		}
		if windows != want {
			t.Errorf("turn %d: back after %d windows, want %d", turn, windows, want)
		}
		w.Changed()
	}
	for what, r := range map[string]Reselection{
		"no gain":               {Promised: 100e6, Measured: 300e6, Now: 300e6, Then: 290e6, InPlace: true},
		"more than a commit":    {Promised: 100e6, Measured: 300e6, Now: 300e6, Then: 100e6},
		"a model that is wrong": {Promised: 100e6, Measured: 150e6, Now: 300e6, Then: 140e6, InPlace: true},
	} {
		if d := w.Slowed(1, r); d.Replan {
			t.Errorf("%s: %+v", what, d)
		}
	}
	if d := w.Note(2, back, outlook(1000)); d.Replan {
		t.Errorf("one window of another generation is enough: %+v", d)
	}
}
