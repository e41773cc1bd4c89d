package elastic

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/plan"
)

// ms is a millisecond.
const ms = schedule.Nanos(1e6)

// even is a pipeline of like stages without messages that take time.
func even(stages int, forward, backward schedule.Nanos, micros int) Problem {
	p := Problem{Micros: micros}
	for i := range stages {
		p.Stages = append(p.Stages, Stage{Time: schedule.StageTime{Forward: forward, Input: backward / 2, Weight: backward - backward/2}})
		if i > 0 {
			p.Boundaries = append(p.Boundaries, Boundary{Forth: cost.Local, Back: cost.Local})
		}
	}
	return p
}

// golden is the specification's example in milliseconds: a middle link of s = 2, L = 4.
func golden() Problem {
	p := even(4, ms, 2*ms, 64)
	slow := cost.Link{BytesPerS: 1e6, RTTNanos: 8e6}
	p.Boundaries[1] = Boundary{Elements: 499, Forth: slow, Back: slow} // 2,000 bytes at 1 MB/s
	return p
}

func choose(t *testing.T, p Problem) Decision {
	t.Helper()
	d, err := Choose(p)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func name(stage int) string { return "stage " + strconv.Itoa(stage) }

// simulated runs the schedule of a decision, with recomputation as actions of its own where
// the costs have some.
func simulated(t *testing.T, d Decision, micros int) schedule.Timeline {
	t.Helper()
	s, err := schedule.Warmups(schedule.Shape{Stages: len(d.Warmups), Micros: micros}, d.Warmups)
	if err != nil {
		t.Fatal(err)
	}
	s = schedule.WithRecompute(s, func(_ schedule.Replica, st schedule.Stage) bool { return d.Costs.Stages[st].Recompute > 0 })
	line, err := schedule.Simulate(s, schedule.Timing{Replicas: []schedule.Costs{d.Costs}})
	if err != nil {
		t.Fatal(err)
	}
	return line
}

func TestGoldenLink(t *testing.T) {
	p := golden()
	for i := range p.Stages {
		p.Stages[i].RoomBytes, p.Stages[i].SlotBytes = 100, 1
	}
	d := choose(t, p)
	if !slices.Equal(d.Warmups, []int{7, 6, 1, 0}) || d.Period != 3*ms {
		t.Fatalf("warm-ups %v period %d, want [7 6 1 0] and 3 ms", d.Warmups, d.Period)
	}
	if got := simulated(t, d, 64).Makespan; got != 213*ms {
		t.Errorf("64 micro-batches take %d, want 213 ms", got)
	}
	if got := d.Bound.Text(name); got != "computing: stage 0 takes 3.00 ms a micro-batch" {
		t.Error(got)
	}
	for i := range p.Stages {
		p.Stages[i].RoomBytes = int64(4 - i) // what 1F1B keeps
	}
	d = choose(t, p)
	if !slices.Equal(d.Warmups, []int{3, 2, 0, 0}) || d.Period != 7*ms || !d.Bound.Memory() {
		t.Fatalf("with the memory of 1F1B: warm-ups %v period %d bound %+v, want [3 2 0 0] and 7 ms by memory", d.Warmups, d.Period, d.Bound)
	}
	if got := d.Bound.Text(name); !strings.HasPrefix(got, "memory of stage 1: 3 in flight share 21.00 ms from there to stage 3 and back, 7.00 ms a micro-batch, 3.00 ms with more") {
		t.Error(got)
	}
}

// TestSlowLink is the reason for a link that no schedule can hide, and what codecs do to it.
func TestSlowLink(t *testing.T) {
	p := even(4, 13*ms, 27*ms, 32)
	for i := range p.Stages {
		p.Stages[i].RoomBytes = 1
	}
	link := cost.Link{BytesPerS: 1_500_000, RTTNanos: 20e6}
	p.Boundaries[2] = Boundary{Elements: 31_499, Forth: link, Back: link}
	d := choose(t, p)
	const want = "link stage 2 → stage 3 at 12.0 Mbit/s: 84.00 ms a micro-batch in f32, stage 0 computes 40.00 ms; " +
		"put more layers on a stage, compress the boundary, or move it to a faster link"
	if got := d.Bound.Text(name); got != want || d.Period != 84*ms {
		t.Errorf("period %d: %s", d.Period, got)
	}
	p.Narrowest = plan.CodecBF16
	if d = widened(t, p); !slices.Equal(d.Codecs, []plan.Codec{plan.CodecF32, plan.CodecF32, plan.CodecBF16}) || d.Period != link.Hop(plan.CodecBF16.Bytes(31_499, 0)).Transfer || d.Exposed[2] != 84*ms {
		t.Errorf("with bf16: codecs %v period %d, exposed %v", d.Codecs, d.Period, d.Exposed)
	}
	p.Narrowest = plan.CodecInt8
	if d = widened(t, p); !slices.Equal(d.Codecs, []plan.Codec{plan.CodecF32, plan.CodecF32, plan.CodecInt8}) || d.Period != 40*ms {
		t.Errorf("with int8: codecs %v period %d", d.Codecs, d.Period)
	}
	p.Widest = plan.CodecInt8
	if d = widened(t, p); !slices.Equal(d.Codecs, []plan.Codec{plan.CodecInt8, plan.CodecInt8, plan.CodecInt8}) {
		t.Errorf("where all are to be int8: %v", d.Codecs)
	}
	p.Widest = 0
	p.Boundaries[2].Forth.BytesPerS, p.Boundaries[2].Back.BytesPerS = 1e7, 1e7 // 12.6 ms: hidden
	if d = widened(t, p); !slices.Equal(d.Codecs, []plan.Codec{plan.CodecF32, plan.CodecF32, plan.CodecF32}) || d.Period != 40*ms {
		t.Errorf("a hidden message: codecs %v period %d", d.Codecs, d.Period)
	}
}

// widened has the codecs of a decision that matter alone.
func widened(t *testing.T, p Problem) Decision {
	t.Helper()
	d, err := Widen(p, choose(t, p))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestMarginIsWithinMemory: messages may be late by a part of the round trip where there is
// room for more in flight; the period is the same.
func TestMarginIsWithinMemory(t *testing.T) {
	p := golden()
	p.MarginPercent = 100
	for _, tc := range []struct {
		room int64
		want []int
	}{{100, []int{10, 9, 1, 0}}, {9, []int{8, 7, 1, 0}}, {8, []int{7, 6, 1, 0}}} {
		for i := range p.Stages {
			p.Stages[i].RoomBytes, p.Stages[i].SlotBytes = tc.room, 1
		}
		d := choose(t, p)
		if !slices.Equal(d.Warmups, tc.want) || d.Period != 3*ms {
			t.Errorf("room for %d: warm-ups %v period %d, want %v", tc.room, d.Warmups, d.Period, tc.want)
		}
		if late := simulated(t, d, 64).Makespan; late > 213*ms {
			t.Errorf("room for %d: 64 micro-batches take %d, 213 ms without a margin", tc.room, late)
		}
	}
}

// TestRecomputesOnlyTheEarlyStages gives every stage the memory of two micro-batches: the
// first ones keep more in flight and must recompute for it, the last need not.
func TestRecomputesOnlyTheEarlyStages(t *testing.T) {
	p := even(4, 10*ms, 20*ms, 64)
	for i := range p.Stages {
		s := &p.Stages[i]
		s.SlotBytes, s.RoomBytes = 400, 1000
		for range 4 {
			s.Layers = append(s.Layers, cost.Recomputations{{}, {FreedBytes: 40, Time: ms / 100, AheadBytes: 40}, {FreedBytes: 90, Time: ms, AheadBytes: 90}})
		}
	}
	d := choose(t, p)
	const none, outputs = model.RecomputeNothing, model.RecomputeOutputs
	if !slices.Equal(d.Recompute[0], outputs.Uniform(4)) || !slices.Equal(d.Recompute[1], []model.Recompute{outputs, outputs, none, none}) || d.Recompute[2] != nil || d.Recompute[3] != nil {
		t.Fatalf("recomputes %v with warm-ups %v", d.Recompute, d.Warmups)
	}
	for i := range p.Stages {
		p.Stages[i].Layers = nil
	}
	if without := choose(t, p); without.Period <= d.Period || !without.Bound.Memory() || without.Bound.From != 0 {
		t.Errorf("without recomputation the period is %d by %+v, with it %d", without.Period, without.Bound, d.Period)
	}
}

// random is a small pipeline whose stages may recompute like layers.
func random(rng *rand.Rand, levels int) Problem {
	p := even(2+rng.IntN(2), 0, 0, 2+rng.IntN(9))
	ahead := rng.IntN(3) // what is restored ahead takes nothing, some, or too much
	for i := range p.Stages {
		s := &p.Stages[i]
		f := schedule.Nanos(1 + rng.IntN(20))
		s.Time = schedule.StageTime{Forward: f, Input: f, Weight: schedule.Nanos(rng.IntN(20))}
		s.SlotBytes, s.RoomBytes = 30, int64(15+rng.IntN(120))
		layer := cost.Recomputations{{}}
		for l := range levels {
			lean := cost.Recomputation{FreedBytes: int64(3*l + 1 + rng.IntN(3)), PassBytes: int64(rng.IntN(3)), Time: schedule.Nanos(rng.IntN(4) + 2*l)}
			lean.AheadBytes = []int64{1, lean.FreedBytes + 1, cost.MaxBytes}[ahead]
			layer = append(layer, lean)
		}
		s.Layers = slices.Repeat([]cost.Recomputations{layer}, 1+rng.IntN(3))
		if i > 0 {
			link := func() cost.Link { return cost.Link{BytesPerS: 1e9, RTTNanos: 2 * rng.Int64N(60)} }
			p.Boundaries[i-1] = Boundary{Elements: rng.Int64N(8), Forth: link(), Back: link()}
		}
	}
	return p
}

// exhaust is the least period over every level of every layer, every number of layers ahead of
// the gradient, and all warm-ups that fit.
func exhaust(p Problem) schedule.Nanos {
	c := p.Costs(slices.Repeat([]plan.Codec{plan.CodecF32}, len(p.Boundaries)))
	best := schedule.Nanos(-1)
	picks := make([]option, len(p.Stages))
	warmups := make([]int, len(p.Stages))
	var stages, warm func(i int)
	warm = func(i int) {
		if i < 0 {
			if period := c.Period(warmups); best < 0 || period < best {
				best = period
			}
			return
		}
		from := 0
		if i+1 < len(warmups) {
			from = warmups[i+1]
		}
		for w := from; w < 40 && (w == from || w <= from+24) && p.holds(picks[i].Room, w); w++ {
			warmups[i] = w
			warm(i - 1)
		}
	}
	stages = func(i int) {
		if i == len(p.Stages) {
			if best < 0 || c.Floor() < best { // no warm-ups make a period shorter than its slowest stage
				warm(len(warmups) - 1)
			}
			return
		}
		for _, picks[i] = range everyOption(p, i) {
			c.Stages[i] = picks[i].time
			stages(i + 1)
		}
	}
	stages(0)
	return best
}

// everyOption is every level of every layer of a stage, with every number of layers ahead.
func everyOption(p Problem, stage int) (all []option) {
	st := p.Stages[stage]
	layers := st.Layers
	for n := range pow(len(layers[0]), len(layers)) {
		o := option{time: st.Time, Room: Room{SlotBytes: st.SlotBytes}}
		var again []cost.Recomputation
		for range layers {
			again = append(again, layers[0][n%len(layers[0])])
			n /= len(layers[0])
		}
		for _, lean := range again {
			o.time.Input, o.SlotBytes = o.time.Input+lean.Time, o.SlotBytes-lean.FreedBytes
		}
		for k := range len(again) + 1 { // layers ahead
			ahead := o
			ahead.PassBytes = 0
			for i, lean := range again {
				if i < len(again)-k {
					ahead.PassBytes = max(ahead.PassBytes, lean.PassBytes)
				}
			}
			for _, lean := range again[len(again)-k:] {
				ahead.time.Input, ahead.time.Recompute, ahead.PassBytes = ahead.time.Input-lean.Time, ahead.time.Recompute+lean.Time, ahead.PassBytes+lean.AheadBytes
			}
			if ahead.InFlight = p.fits(st, ahead.Room); ahead.InFlight > 0 {
				all = append(all, ahead)
			}
		}
	}
	return all
}

func pow(base, exponent int) int {
	n := 1
	for range exponent {
		n *= base
	}
	return n
}

// TestLeastPeriod compares with every choice there is. With one level of like layers the
// greedy order is exact; a decision without recomputation may have a longer period where
// that makes the whole step shorter.
func TestLeastPeriod(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	recomputed, refused := 0, 0
	n := rounds(250, 10)
	for round := range n {
		p := random(rng, 1)
		best := exhaust(p)
		d, err := Choose(p)
		var no *NoRoom
		if errors.As(err, &no) {
			if refused++; best >= 0 {
				t.Fatalf("round %d: %v, but period %d is possible: %+v", round, err, best, p)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		exact := slices.ContainsFunc(d.Recompute, func(l []model.Recompute) bool { return l != nil })
		if exact {
			recomputed++
		}
		if d.Period < best || (exact && d.Period != best) {
			t.Fatalf("round %d: period %d with %v and %v, least is %d: %+v", round, d.Period, d.Warmups, d.Recompute, best, p)
		}
	}
	if recomputed < n/6 || refused < n/25 {
		t.Errorf("%d recomputed, %d were refused", recomputed, refused)
	}
}

// TestDecisionsHold simulates: memory is kept to and the promised period reached.
func TestDecisionsHold(t *testing.T) {
	rng := rand.New(rand.NewPCG(23, 24))
	checked := 0
	n := rounds(600, 60)
	for range n {
		p := random(rng, 2)
		p.Micros = 840 // a multiple of every depth up to 8, so that cycles are whole
		d, err := Choose(p)
		if err != nil {
			continue
		}
		checked++
		line, twice := simulated(t, d, 840), simulated(t, d, 1680)
		if got, most := twice.Makespan-line.Makespan, 840*d.Period; got > most {
			t.Fatalf("840 micro-batches take %d, promised were %d: %+v\n%+v", got, most, d, p)
		}
		for i, st := range p.Stages {
			need := int64(line.PeakLive[i]) * st.SlotBytes
			var time schedule.Nanos
			for l, level := range d.Recompute[i] {
				need -= int64(line.PeakLive[i]) * st.Layers[l][level].FreedBytes
				time += st.Layers[l][level].Time
			}
			if need > st.RoomBytes || line.PeakLive[i] > d.Rooms[i].InFlight {
				t.Fatalf("stage %d takes %d of %d bytes, %d of %d in flight", i, need, st.RoomBytes, line.PeakLive[i], d.Rooms[i].InFlight)
			}
			if got := d.Costs.Stages[i].Micro() + d.Costs.Stages[i].Recompute - st.Time.Micro(); got != time {
				t.Fatalf("stage %d recomputes for %d, its layers take %d", i, got, time)
			}
		}
	}
	if checked < n/2 {
		t.Errorf("only %d of %d had a schedule", checked, n)
	}
}

func TestChooseRefuses(t *testing.T) {
	for what, change := range map[string]func(*Problem){
		"no stages":            func(p *Problem) { p.Stages = nil },
		"boundaries":           func(p *Problem) { p.Boundaries = nil },
		"no micro-batches":     func(p *Problem) { p.Micros = 0 },
		"unknown codec":        func(p *Problem) { p.Narrowest = 99 },
		"no codec between":     func(p *Problem) { p.Widest = plan.CodecBF16 },
		"negative slot":        func(p *Problem) { p.Stages[0].SlotBytes = -1 },
		"frees more than all":  func(p *Problem) { p.Stages[0].Layers = []cost.Recomputations{{{}, {FreedBytes: 2}}} },
		"negative elements":    func(p *Problem) { p.Boundaries[0].Elements = -1 },
		"absurd recomputation": func(p *Problem) { p.Stages[1].Layers = []cost.Recomputations{{{}, {Time: 1 << 60}}} },
	} {
		p := golden()
		change(&p)
		if _, err := Choose(p); !errors.Is(err, ErrBadProblem) {
			t.Errorf("%s: %v", what, err)
		}
	}
	p := golden()
	p.Stages[2].SlotBytes, p.Stages[2].RoomBytes = 10, 4
	p.Stages[2].Layers = []cost.Recomputations{{{}, {FreedBytes: 5}}}
	var no *NoRoom
	if _, err := Choose(p); !errors.As(err, &no) || *no != (NoRoom{2, 5, 4}) {
		t.Errorf("a stage without room: %v", err)
	}
}

// rounds returns how many random cases a test looks at: fewer where there is little time.
func rounds(all, short int) int {
	if testing.Short() {
		return short
	}
	return all
}

// TestUsefulOptionsAreEnough: an option that is left out is never the one of the least demand.
func TestUsefulOptionsAreEnough(t *testing.T) {
	rng := rand.New(rand.NewPCG(25, 26))
	all, kept, chosen := 0, 0, 0
	for round := range 300 {
		p := random(rng, 2)
		s := newSolver(p, slices.Repeat([]plan.Codec{p.narrowest()}, len(p.Boundaries)))
		for i, st := range p.Stages {
			s.open(i, newFrontier(st.Layers))
		}
		few := useful(s.all)
		for range 50 {
			period := s.costs.Floor() + schedule.Nanos(rng.Int64N(int64(s.costs.RoundTrip())))
			var later *schedule.Demand
			for i := len(p.Stages) - 1; i >= 0; i-- {
				want, d, ok := s.least(i, s.all[i], later, period)
				got, same, fits := s.least(i, few[i], later, period)
				if ok != fits || ok && (d != same || got.point != want.point || got.layers != want.layers) {
					t.Fatalf("round %d: stage %d at %d takes %+v of the useful options, %+v of all: %+v", round, i, period, got, want, p)
				}
				if !ok {
					break
				}
				later = &d
				chosen++
			}
		}
		for i := range p.Stages {
			all, kept = all+len(slices.Concat(s.all[i]...)), kept+len(slices.Concat(few[i]...))
		}
	}
	if kept*2 > all || chosen < 10_000 {
		t.Errorf("%d of %d options are useful, %d were chosen", kept, all, chosen)
	}
}
