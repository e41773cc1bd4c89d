package pipeline

import (
	"log/slog"
	"sync"
	"testing"

	"pnode/kernels"
	"pnode/kernels/null"
	"pnode/planner/plan"
)

// choices makes the coordinator name the next choice of a list after every step, and keeps
// on which ones the steps went.
type choices struct {
	texts []string
	mu    sync.Mutex // guards went
	went  map[plan.Step]string
}

func (c *choices) next(t *testing.T) func(plan.Step) plan.ScheduleChoice {
	return func(step plan.Step) plan.ScheduleChoice {
		choice, err := plan.ParseScheduleChoice(c.texts[int(step)%len(c.texts)])
		if err != nil {
			t.Error(err)
		}
		return choice
	}
}

// trainAlong carries a plan out while its choice changes.
func trainAlong(t *testing.T, run plan.RunSpec, p plan.Plan, keeper Keeper, c *choices) result {
	t.Helper()
	out := newResult()
	c.went = map[plan.Step]string{}
	onStep := func(r StepResult) {
		c.mu.Lock()
		defer c.mu.Unlock()
		out.evaluated(t, r)
		if !r.Final {
			agree(t, out.losses, r.Step, false, r.Loss)
			c.went[r.Step] = r.Schedule.String()
		}
	}
	config := Config{Run: run, Plan: p, Keeper: keeper, Data: patterned{run.Model.Context}, Next: c.next(t), OnStep: onStep}
	trainBy(t, config, func(d kernels.Device) kernels.Device { return d })
	return out
}

// TestAChangeOfScheduleKeepsTheBits changes the schedule after every step, while checkpoints
// are saved, and wants the losses and states of a run that never does.
func TestAChangeOfScheduleKeepsTheBits(t *testing.T) {
	t.Parallel()
	run := deep()
	run.Train.Steps, run.Train.CheckpointEvery = 9, 1
	shares := []string{"1f1b 1,0 1,0 6+2", "zb-h1 2+6", "1f1b 0,0 1,0 1+7", "gpipe 4,0 2,0 5+3", "zb-h1 4+4"}
	inParts := laned(t, run, "1f1b", 2, 2)
	inParts.Sharded = plan.LayerRanges{{First: 0, End: run.Model.Layers()}}
	for _, c := range []struct {
		name  string
		plan  plan.Plan
		texts []string
	}{
		{"one stage a worker", scheduled(t, run, "1f1b", 4), []string{
			"zb-h1", "1f1b 7,6,1,0", "seq1f1b", "gpipe 3,2,1,0", "zb-h2", "kfkb:k=3", "2bp", "1f1b 3,2,1,0",
		}},
		{"optimizer state in host memory", offloaded(scheduled(t, run, "1f1b", 2)), []string{"1f1b 7,0", "zb-h1", "1f1b 1,0", "gpipe 3,0"}},
		{"two in turns", scheduled(t, run, "interleaved:v=2", 4), []string{
			"breadth-first:v=2", "interleaved:v=2,f=5+3,b=4+4", "depth-first:v=2",
		}},
		{"two in a V", scheduled(t, run, "zb-v", 4), []string{"v-half", "v-min", "hanayo", "zb-v"}},
		{"both ways", scheduled(t, run, "chimera", 4), []string{"chimera-doubling 4+4", "chimera 4+4"}},
		{"two replicas with other shares", laned(t, run, "1f1b", 2, 2), shares},
		{"two replicas with state in parts and other shares", inParts, shares},
	} {
		t.Run(c.name, func(t *testing.T) {
			run := run
			if testing.Short() { // each schedule once
				run.Train.Steps = plan.Step(len(c.texts) + 1)
			}
			steady, changing := &memoryKeeper{}, &memoryKeeper{}
			want := train(t, run, c.plan, steady)
			along := &choices{texts: c.texts}
			equal(t, c.name, trainAlong(t, run, c.plan, from{changing, 0}, along), want)
			equalStates(t, c.name, changing, steady)
			for step := plan.Step(2); step <= run.Train.Steps; step++ {
				if text := c.texts[int(step-1)%len(c.texts)]; along.went[step] != text {
					t.Errorf("step %d went on %q, want %q", step, along.went[step], text)
				}
			}
		})
	}
}

// TestAScheduleThatDoesNotFitIsNotTaken has the coordinator ask for schedules of other seats.
func TestAScheduleThatDoesNotFitIsNotTaken(t *testing.T) {
	run := deep()
	plan := scheduled(t, run, "1f1b", 2)
	want := train(t, run, plan, &memoryKeeper{})
	c := &choices{texts: []string{"interleaved:v=2", "chimera", "1f1b 0,1", "seq1f1b:n=4"}}
	equal(t, "steadfast", trainAlong(t, run, plan, from{&memoryKeeper{}, 0}, c), want)
	for step, text := range c.went {
		if text != plan.ScheduleChoice().String() {
			t.Errorf("step %d went on %q", step, text)
		}
	}
	run.Train.SumGroups = 4 // of two micro-batches
	p, err := newProgram(run, laned(t, run, "1f1b", 2, 2), plan.Workers()[0])
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{"zb-h1 6+2": true, "zb-h1 5+3": false, "zb-h1 8+0": false, "zb-h1 4+2": false, "zb-h1 4+2+2": false} {
		if _, err := p.with(text); (err == nil) != want {
			t.Errorf("shares of %q: %v", text, err)
		}
	}
}

// TestAChangeOfScheduleTakesTheMemoryOfTheNewOne follows choices on a device that counts.
func TestAChangeOfScheduleTakesTheMemoryOfTheNewOne(t *testing.T) {
	run := deep()
	plan := scheduled(t, run, "1f1b", 4)
	for _, seat := range plan.Workers() {
		device := &counting{Device: null.New()}
		w, err := New(Config{Worker: seat, Run: run, Plan: plan, Device: device, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"zb-h2", "seq1f1b", "gpipe 0,0,0,0", "1f1b 3,2,1,0"} {
			if err := w.reschedule(text); err != nil {
				t.Fatal(err)
			}
			if want := memoryOf(t, run, w.plan, w.stages[0].StageID).Total() + 4*int64(w.squares.Len()); device.bytes != want {
				t.Errorf("%s on %s: %d bytes are taken, want %d", text, seat.Peer, device.bytes, want)
			}
		}
		w.Close()
		if device.bytes != 0 {
			t.Errorf("%d bytes are left", device.bytes)
		}
	}
}

// counting is a device that knows how many bytes are allocated now.
type counting struct {
	kernels.Device
	bytes int64
}

type counted struct {
	kernels.Buffer
	device *counting
}

func (d *counting) Alloc(t kernels.DType, n int) (kernels.Buffer, error) {
	b, err := d.Device.Alloc(t, n)
	if err != nil {
		return nil, err
	}
	d.bytes += int64(n * t.SizeBytes())
	return counted{b, d}, nil
}

func (b counted) Free() {
	b.device.bytes -= int64(b.Len() * b.DType().SizeBytes())
	b.Buffer.Free()
}
