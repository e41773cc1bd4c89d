package optimum

import (
	"fmt"
	"hash/fnv"
	"slices"
	"testing"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/plan"
)

// fourDevices have room for five layers each, the later ones less speed.
func fourDevices(t *testing.T) Devices {
	t.Helper()
	layer := model.LayerCost{ForwardFLOPs: 1e9, InputFLOPs: 1e9, WeightFLOPs: 1e9, ParamBytes: 1 << 20, SavedBytes: 1 << 16, BoundaryBytes: 1 << 12}
	m := cost.NewModel(cost.NewMemory(cost.Training{Costs: slices.Repeat([]model.LayerCost{layer}, 5)}), func(_, _ int) cost.Link {
		return cost.Link{BytesPerS: 1e9, RTTNanos: 1e6}
	})
	for i := range 4 {
		d, err := m.Memory.NewDevice(plan.DeviceProfile{MatMulFLOPS: int64(4-i) * 1e12, MemoryBytesPerS: 1e11, MemoryFreeBytes: 1 << 40}, model.StorageF32)
		if err != nil {
			t.Fatal(err)
		}
		m.Devices = append(m.Devices, d)
	}
	return Devices{Model: m, Pool: []int{0, 1, 2, 3}, Micros: 8, Bytes: func(tensor int64) int64 { return tensor }, Message: 1 << 12}
}

// lookAtAll searches all shapes of four devices. A replica is the text of its devices and ends.
func lookAtAll(on Devices, calls Calls[string], known schedule.Nanos, placements int) *Search[string] {
	calls.Cut = func(_ *cost.Model, devices, ends []int, _ int) (string, schedule.Nanos, error) {
		return fmt.Sprint(devices, ends), 0, nil
	}
	s := New(on, calls, known, placements)
	for replicas := range 4 {
		for stages := 1; (replicas+1)*stages <= 4; stages++ {
			s.Look(Shape{replicas + 1, stages, on.Model, slices.Repeat([]int{1}, replicas+1)})
		}
	}
	return s
}

// TestEveryPlanIsTimed where none can be excluded, each once, and the one with the least step is found.
func TestEveryPlanIsTimed(t *testing.T) {
	timed, least, best := map[string]bool{}, schedule.Nanos(1)<<60, ""
	s := lookAtAll(fourDevices(t), Calls[string]{Stop: func() bool { return false }, Time: func(pipes []string) (schedule.Nanos, error) {
		text := fmt.Sprint(pipes)
		if timed[text] {
			t.Errorf("%s is timed twice", text)
		}
		timed[text] = true
		hash := fnv.New32a()
		hash.Write([]byte(text))
		step := 1<<40 + schedule.Nanos(hash.Sum32())
		if step < least {
			least, best = step, text
		}
		return step, nil
	}}, 1<<60, 1<<20)
	// By replicas and stages: orders of devices, and cuts of each replica.
	want := 4 + 12*4 + 24*6 + 24*4 + 12 + 24*4*4 + 24 + 24
	if len(timed) != want || s.Step != least || fmt.Sprint(s.Pipes) != best || s.Left == 0 {
		t.Errorf("%d plans, want %d; the best is %v with %d, want %s with %d; %d placements left", len(timed), want, s.Pipes, s.Step, best, least, s.Left)
	}
}

// TestWhatCannotBeQuickerIsNotTimed: no step takes a quarter of what the fastest device needs for one micro-batch.
func TestWhatCannotBeQuickerIsNotTimed(t *testing.T) {
	on, never := fourDevices(t), func() bool { return false }
	s := lookAtAll(on, Calls[string]{Stop: never, Time: func(pipes []string) (schedule.Nanos, error) {
		t.Errorf("%s is timed", pipes)
		return 1, nil
	}}, NewLower(on).first/4, 1<<20)
	if s.Pipes != nil || s.Left == 0 {
		t.Errorf("%v, %d placements left", s.Pipes, s.Left)
	}
}

// TestSearchGivesUp after as many placements, and when it is told to.
func TestSearchGivesUp(t *testing.T) {
	for _, c := range []struct {
		placements int
		stop       bool
	}{{3, false}, {1 << 11, true}} {
		plans := 0
		s := lookAtAll(fourDevices(t), Calls[string]{Stop: func() bool { return c.stop }, Time: func([]string) (schedule.Nanos, error) {
			plans++
			return 1 << 40, nil
		}}, 1<<60, c.placements)
		if s.Left != 0 || plans == 0 || plans > 700 {
			t.Errorf("%+v: %d plans, %d placements left", c, plans, s.Left)
		}
	}
}
