package pipeline

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pnode/kernels"
	"pnode/kernels/cpu"
	"pnode/kernels/emulate"
	"pnode/planner/plan"
)

// far is a device of which the host learns what it waited for a while later.
type far struct {
	kernels.Device
	way time.Duration
}

type farQueue struct {
	kernels.Queue
	way time.Duration
}

type farEvent struct {
	kernels.Event
	way time.Duration
}

func (d far) NewQueue() (kernels.Queue, error) {
	q, err := d.Device.NewQueue()
	return farQueue{q, d.way}, err
}

func (q farQueue) Record() kernels.Event { return farEvent{q.Queue.Record(), q.way} }
func (q farQueue) Wait(e kernels.Event)  { q.Queue.Wait(e.(farEvent).Event) }

func (q farQueue) Sync() error {
	defer time.Sleep(q.way)
	return q.Queue.Sync()
}

func (e farEvent) Sync() error {
	defer time.Sleep(e.way)
	return e.Event.Sync()
}

// slowCard takes milliseconds for a pass of testRun.
var slowCard = emulate.Profile{Model: "slow", MatMulFLOPS: 1e8, AttentionFLOPS: 1e8, MemoryBytesPerS: 1e9, MemoryBytes: 1 << 40}

// steps trains on slow cards that are so far, and gives what each step took.
func steps(t *testing.T, run plan.RunSpec, plan plan.Plan, way time.Duration) (took []StepResult) {
	synctest.Test(t, func(t *testing.T) {
		first := plan.Coordinator()
		trainBy(t, Config{
			Run: run, Plan: plan, Keeper: from{&memoryKeeper{}, 0}, Data: patterned{run.Model.Context},
			OnStep: func(r StepResult) {
				if len(r.Stages) > 0 && plan.At(r.Stages[0].StageID).Worker() == first {
					took = append(took, r)
				}
			},
		}, func(d kernels.Device) kernels.Device {
			slow, err := emulate.New(d, emulate.Options{Profile: slowCard})
			if err != nil {
				t.Fatal(err)
			}
			return far{slow, way}
		})
	})
	return took
}

// TestPassesFollowEachOther: a device does not stand still while the host learns that a pass is
// over. The host waits a few times in a step, however many passes that has.
func TestPassesFollowEachOther(t *testing.T) {
	const way, waits = 5 * time.Millisecond, 4 // the passes, the norm, the update, and the end of a copy
	run := testRun()
	run.Train.Steps, run.Train.Micros, run.Train.HeldOutEvery = 3, 16, 0
	near, distant := steps(t, run, cut(run, "1f1b", []int{0}), 0), steps(t, run, cut(run, "1f1b", []int{0}), way)
	for i, d := range distant {
		passes := near[i].Stages[0].Forward + near[i].Stages[0].Backward
		if extra := d.Total - near[i].Total; extra > waits*way || passes < 10*way {
			t.Errorf("step %d takes %v, and %v more where the host learns everything %v later", d.Step, near[i].Total, extra, way)
		}
		if got := d.Stages[0].Forward + d.Stages[0].Backward; got != passes {
			t.Errorf("step %d: passes take %v, %v where the host learns everything at once", d.Step, got, passes)
		}
	}
}

// TestTimesOfStages: what is told of a stage is what its device did, and how long that stood still
// for want of a message, wherever the host is.
func TestTimesOfStages(t *testing.T) {
	run := testRun()
	run.Train.Steps, run.Train.Micros, run.Train.SumGroups, run.Train.HeldOutEvery = 3, 8, 1, 0
	alone := steps(t, run, cut(run, "1f1b", []int{0}), 0)
	plan := cut(run, "1f1b", []int{0, 2})
	near, distant := steps(t, run, plan, 0), steps(t, run, plan, 5*time.Millisecond)
	for i, r := range near {
		last, far, whole := r.Stages[0], distant[i].Stages[0], alone[i].Stages[0]
		if last.Forward != far.Forward || last.Backward != far.Backward || last.Wait <= 0 || far.Wait < last.Wait {
			t.Errorf("step %d: %+v, and with a distant host %+v", r.Step, last, far)
		}
		if last.Forward <= 0 || last.Forward >= whole.Forward || last.Backward <= last.Forward || last.Backward >= whole.Backward {
			t.Errorf("step %d: %+v of %+v", r.Step, last, whole)
		}
		if told := whole.Forward + whole.Backward + whole.Wait + whole.Update; whole.Wait != 0 || told > alone[i].Total || alone[i].Total-told > time.Millisecond {
			t.Errorf("step %d took %v, of which %v are told: %+v", r.Step, alone[i].Total, told, whole)
		}
	}
}

// breaking is a device that gives a bad result away late: only who waits for an event behind the
// n-th call of an operation, or for its queue, learns of it.
type breaking struct {
	kernels.Device
	op kernels.Op
	n  int
}

type breakingQueue struct {
	kernels.Queue
	dev  *breaking
	seen int
}

type brokenEvent struct{ kernels.Event }

var errFoundOut = errors.New("the device broke")

func (brokenEvent) Sync() error { return errFoundOut }

func (d *breaking) NewQueue() (kernels.Queue, error) {
	q, err := d.Device.NewQueue()
	return &breakingQueue{Queue: q, dev: d}, err
}

func (q *breakingQueue) Do(c kernels.Call) {
	if c.Op == q.dev.op {
		q.seen++
	}
	q.Queue.Do(c)
}

func (q *breakingQueue) Record() kernels.Event {
	if e := q.Queue.Record(); q.seen < q.dev.n {
		return e
	} else {
		return brokenEvent{e}
	}
}

func (q *breakingQueue) Wait(e kernels.Event) {
	if b, ok := e.(brokenEvent); ok {
		e = b.Event
	}
	q.Queue.Wait(e)
}

func (q *breakingQueue) Sync() error {
	if err := q.Queue.Sync(); err != nil || q.seen < q.dev.n {
		return err
	}
	return errFoundOut
}

// TestErrorsNameTheirPass: what a device finds out while the program is ahead of it ends the step,
// and says where it happened.
func TestErrorsNameTheirPass(t *testing.T) {
	run := testRun()
	run.Train.HeldOutEvery, run.Train.Micros = 0, 100
	plan := cut(run, "1f1b", []int{0})
	device, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	for want, b := range map[string]*breaking{
		"0F3": {op: kernels.OpGELUForward, n: 3*run.Model.Blocks + 1}, "0B2": {op: kernels.OpGELUBackward, n: 3 * run.Model.Blocks},
	} {
		b.Device = device
		w, err := New(usual(Config{
			Worker: plan.Workers()[0], Run: run, Plan: plan, Device: b,
			OnStep: func(r StepResult) { t.Errorf("step %d ends well", r.Step) },
		}))
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Run(t.Context(), t.Context()); !errors.Is(err, errFoundOut) || !strings.Contains(err.Error(), want+": "+errFoundOut.Error()) {
			t.Errorf("the device breaks in %s: %v", want, err)
		}
		w.Close()
	}
}
