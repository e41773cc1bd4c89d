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

// fourDevices have room for five layers each, and speeds in TFLOP/s.
func fourDevices(t *testing.T, speeds ...int64) Devices {
	t.Helper()
	layer := model.LayerCost{ForwardFLOPs: 1e9, InputFLOPs: 1e9, WeightFLOPs: 1e9, ParamBytes: 1 << 20, SavedBytes: 1 << 16, BoundaryBytes: 1 << 12}
	m := cost.NewModel(cost.NewMemory(cost.Training{Costs: slices.Repeat([]model.LayerCost{layer}, 5)}), func(_, _ int) cost.Link {
		return cost.Link{BytesPerS: 1e9, RTTNanos: 1e6}
	})
	for _, speed := range speeds {
		d, err := m.Memory.NewDevice(plan.DeviceProfile{MatMulFLOPS: speed * 1e12, MemoryBytesPerS: 1e11, MemoryFreeBytes: 1 << 40}, model.StorageF32)
		if err != nil {
			t.Fatal(err)
		}
		m.Devices = append(m.Devices, d)
	}
	return Devices{Model: m, Pool: []int{0, 1, 2, 3}, Micros: 8, Bytes: func(tensor int64) int64 { return tensor }, Message: 1 << 12}
}

// lookAtAll searches all shapes of four devices. A replica is the text of its devices and ends.
func lookAtAll(on Devices, calls Calls[string], known schedule.Nanos, work int) *Search[string] {
	calls.Cut = func(_ *cost.Model, devices, ends []int, _ int) (string, schedule.Nanos, error) {
		return fmt.Sprint(devices, ends), 0, nil
	}
	s := New(on, calls, known, work)
	for replicas := range 4 {
		for stages := 1; (replicas+1)*stages <= 4; stages++ {
			s.Look(Shape{replicas + 1, stages, on.Model, slices.Repeat([]int{1}, replicas+1)})
		}
	}
	return s
}

// TestEveryPlanIsTimed where none can be excluded, each once, and the one with the least step is found. Of like devices only one order
// is tried.
func TestEveryPlanIsTimed(t *testing.T) {
	for _, c := range []struct {
		name   string
		speeds []int64
		want   int // by replicas and stages: orders of devices, and cuts of each replica
	}{
		{"unlike", []int64{4, 3, 2, 1}, 4 + 12*4 + 24*6 + 24*4 + 12 + 24*4*4 + 24 + 24},
		{"two alike", []int64{3, 2, 2, 1}, 3 + 7*4 + 12*6 + 12*4 + 7 + 12*4*4 + 12 + 12},
		{"all alike", []int64{1, 1, 1, 1}, 1 + 4 + 6 + 4 + 1 + 4*4 + 1 + 1},
	} {
		timed, least, best := map[string]bool{}, schedule.Nanos(1)<<60, ""
		s := lookAtAll(fourDevices(t, c.speeds...), Calls[string]{Stop: func() bool { return false }, Time: func(pipes []string) (schedule.Nanos, error) {
			text := fmt.Sprint(pipes)
			if timed[text] {
				t.Errorf("%s: %s is timed twice", c.name, text)
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
		if len(timed) != c.want || s.Step != least || fmt.Sprint(s.Pipes) != best || s.Left == 0 {
			t.Errorf("%s: %d plans, want %d; the best is %v with %d, want %s with %d; %d work left", c.name, len(timed), c.want, s.Pipes, s.Step, best, least, s.Left)
		}
	}
}

// TestWhatCannotBeQuickerIsNotTimed: no step takes a quarter of what the fastest device needs for one micro-batch.
func TestWhatCannotBeQuickerIsNotTimed(t *testing.T) {
	on, never := fourDevices(t, 4, 3, 2, 1), func() bool { return false }
	s := lookAtAll(on, Calls[string]{Stop: never, Time: func(pipes []string) (schedule.Nanos, error) {
		t.Errorf("%s is timed", pipes)
		return 1, nil
	}}, NewLower(on).first/4, 1<<20)
	if s.Pipes != nil || s.Left == 0 {
		t.Errorf("%v, %d work left", s.Pipes, s.Left)
	}
}

// TestSearchGivesUp after as much work, and when it is told to.
func TestSearchGivesUp(t *testing.T) {
	for _, c := range []struct {
		work int
		stop bool
	}{{1 << 8, false}, {1 << 12, true}} {
		plans := 0
		s := lookAtAll(fourDevices(t, 4, 3, 2, 1), Calls[string]{Stop: func() bool { return c.stop }, Time: func([]string) (schedule.Nanos, error) {
			plans++
			return 1 << 40, nil
		}}, 1<<60, c.work)
		if s.Left != 0 || plans == 0 || plans > 700 {
			t.Errorf("%+v: %d plans, %d work left", c, plans, s.Left)
		}
	}
}
