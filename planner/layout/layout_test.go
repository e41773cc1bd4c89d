package layout

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/plan"
)

const (
	layers = 8
	micros = 6
)

// testModel is two devices of so many bytes, with layers of which half can be recomputed.
func testModel(t *testing.T, free int64) *cost.Model {
	t.Helper()
	training := cost.Training{}
	for range layers {
		k := model.LayerCost{ForwardFLOPs: 1e6, InputFLOPs: 1e6, WeightFLOPs: 1e6, ParamBytes: 1200, SavedBytes: 8 << 10, BoundaryBytes: 1 << 10}
		k.Lean[model.RecomputeNothing] = model.LeanCost{SavedBytes: k.SavedBytes}
		k.Lean[model.RecomputeBlock] = model.LeanCost{SavedBytes: k.SavedBytes / 2, RecomputeFLOPs: 1e6}
		training.Costs = append(training.Costs, k)
	}
	m := cost.NewModel(cost.NewMemory(training), func(from, to int) cost.Link {
		if from == to {
			return cost.Local
		}
		return cost.Link{BytesPerS: 1e6, RTTNanos: 2e6}
	})
	for range 2 {
		d, err := m.Memory.NewDevice(plan.DeviceProfile{MatMulFLOPS: 1e9, MemoryBytesPerS: 1e12, MemoryFreeBytes: free}, model.StorageF32)
		if err != nil {
			t.Fatal(err)
		}
		d.FreeBytes = free - m.Memory.Device(model.StorageF32).Pass()
		m.Devices = append(m.Devices, d)
	}
	return m
}

// fit is Fit with work for anything.
func fit(m *cost.Model, l *Layout) error { return Fit(m, l, &Budget{Actions: 1 << 20}) }

// halves is a replica whose units have half of the layers each, under a schedule.
func halves(t *testing.T, text string) *Layout {
	t.Helper()
	spec, err := schedule.ParseSpec(text)
	if err != nil {
		t.Fatal(err)
	}
	list, err := spec.Build(schedule.Group{Stages: 2, Shares: []schedule.Share{{Micros: micros}}})
	if err != nil {
		t.Fatal(err)
	}
	list = schedule.WithReduceAndStep(schedule.WithCommunication(list))
	l := &Layout{Programs: list, Rows: cost.Rows{nil}, Codecs: [][]plan.Codec{{plan.CodecF32}}, Micros: []int{micros}}
	for u := range 2 {
		l.Rows[0] = append(l.Rows[0], cost.Stage{Device: u, First: u * layers / 2, End: (u + 1) * layers / 2, Worker: u, Use: list.Use(u, 0, schedule.Stage(u))})
	}
	return l
}

// TestFitRecomputesWhatItMust: nothing with much memory, then something, until it is said of which
// unit the memory does not do; what fits is what the cells add up to.
func TestFitRecomputesWhatItMust(t *testing.T) {
	for _, text := range []string{"gpipe", "1f1b", "zb-h1"} {
		some, refused := 0, 0
		for free := int64(300 << 10); free > 0; free -= 4 << 10 {
			s, l := testModel(t, free), halves(t, text)
			err := fit(s, l)
			var no *NoFit
			if errors.As(err, &no) {
				if no.NeedBytes <= no.FreeBytes || len(no.At) != 1 || no.At[0] != l.On(no.Device)[0] {
					t.Errorf("%s in %d bytes: %+v", text, free, no)
				}
				refused++
				continue
			}
			if err != nil || refused > 0 {
				t.Fatalf("%s in %d bytes: %v, after %d times too little", text, free, err, refused)
			}
			again := 0
			for u, k := range l.Rows[0] {
				if l.Need[u] != s.Bytes(k) || l.Need[u] > s.Room(u) {
					t.Errorf("%s in %d bytes: unit %d takes %d, its stage %d, there are %d", text, free, u, l.Need[u], s.Bytes(k), s.Room(u))
				}
				for _, level := range k.Levels {
					again += int(min(level, 1))
				}
			}
			if again > 0 {
				some++
			} else if some > 0 {
				t.Errorf("%s in %d bytes: nothing is computed again, with more memory something is", text, free)
			}
		}
		if some == 0 || refused == 0 {
			t.Errorf("%s: %d times something is computed again, %d times nothing fits", text, some, refused)
		}
	}
}

// TestWaitsAreUsed: what is computed again ahead of gradients never makes the passes longer, and
// shorter where they would wait for it.
func TestWaitsAreUsed(t *testing.T) {
	shorter := 0
	for _, text := range []string{"gpipe", "1f1b", "zb-h1"} {
		for free := int64(300 << 10); free > 0; free -= 4 << 10 {
			s, l := testModel(t, free), halves(t, text)
			if fit(s, l) != nil || l.Rows[0][0].Ahead == 0 {
				continue
			}
			used := l.End
			l.Rows[0][0].Ahead = 0
			if err := l.Time(s); err != nil || used > l.End {
				t.Errorf("%s in %d bytes: the passes take %d, with all after the gradients %d: %v", text, free, used, l.End, err)
			}
			if used < l.End {
				shorter++
			}
		}
	}
	if shorter == 0 {
		t.Error("nothing is ever gained")
	}
}

// TestWidenTakesNoTime: tensors cross in float32 where that costs nothing, else in fewer bits, and
// the reason is kept.
func TestWidenTakesNoTime(t *testing.T) {
	for rate, want := range map[int64]plan.Codec{1e9: plan.CodecF32, 20_000: plan.CodecInt8} {
		s, l := testModel(t, 1<<20), halves(t, "gpipe")
		s.Link = func(int, int) cost.Link { return cost.Link{BytesPerS: rate} }
		l.Codecs[0][0] = plan.CodecInt8
		if err := errors.Join(l.Time(s), Widen(s, l, plan.CodecF32, plan.CodecInt8)); err != nil {
			t.Fatal(err)
		}
		if at := (Boundary{}); l.Codecs[0][0] != want || (l.Exposed[at] > l.End) != (want != plan.CodecF32) {
			t.Errorf("%d bytes a second: %v, %d exposed of %d", rate, l.Codecs[0][0], l.Exposed[at], l.End)
		}
	}
}

// TestExchangeAddsUpMessages of every unit to the holders of the same layers, layer by layer.
func TestExchangeAddsUpMessages(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 3))
	s := testModel(t, 1<<20)
	s.Devices = slices.Repeat(s.Devices[:1], 9)
	for range 200 {
		rows := make(cost.Rows, 1+rng.IntN(3))
		for r := range rows {
			first := 0
			for st := 0; first < layers; st++ {
				end := min(layers, first+1+rng.IntN(layers))
				if st == 2 {
					end = layers
				}
				rows[r] = append(rows[r], cost.Stage{Device: 3*r + st, First: first, End: end})
				first = end
			}
		}
		some := plan.LayerRanges{{First: rng.IntN(3), End: 3 + rng.IntN(6)}}
		// Each layer's 1200 bytes are cut into a part for each replica, a part of a microsecond a byte.
		var slowest schedule.Nanos
		for _, row := range rows {
			for _, k := range row {
				sent := 0
				for l := k.First; l < k.End; l++ {
					if some.Contains(l) {
						sent += (len(rows) - 1) * 1200 / len(rows)
					}
				}
				slowest = max(slowest, schedule.Nanos(sent)*1000)
			}
		}
		if slowest > 0 {
			slowest += 1e6 // half a round trip
		}
		if got := s.Exchange(rows, some, nil); got != slowest {
			t.Fatalf("%+v: %v take %d, want %d", rows, some, got, slowest)
		}
	}
}
