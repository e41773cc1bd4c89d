package pipeline

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"pnode/kernels"
	"pnode/kernels/cpu"
)

// TestAPlanThatDoesNotFitIsRefused before anything is allocated, with what it needs.
func TestAPlanThatDoesNotFitIsRefused(t *testing.T) {
	run := testRun()
	plan := spread(cut(run, "1f1b", []int{0, 1, 2, 3}), []int{0, 1, 0, 1})
	for _, seat := range plan.Workers() {
		const norm = 4 * 2 * 12 // room for the gradient's square sums of 4 groups of micro-batches
		need := int64(norm)
		for _, at := range plan.StagesOf(seat) {
			need += memoryOf(t, run, plan, at).Total()
		}
		for _, short := range []int64{0, 8} {
			device, err := cpu.New(cpu.Options{Threads: 1})
			if err != nil {
				t.Fatal(err)
			}
			device.LimitMemory(need - short)
			w, err := New(Config{Worker: seat, Run: run, Plan: plan, Device: device, Log: slog.New(slog.DiscardHandler)})
			switch {
			case short == 0 && err != nil:
				t.Errorf("exactly enough: %v", err)
			case short == 0:
				w.Close()
			case !errors.Is(err, kernels.ErrOutOfMemory) || !strings.Contains(err.Error(), fmt.Sprintf("%s: kernels: out of device memory: generation 1 needs %d bytes, %d are available", seat.Device, need, need-short)):
				t.Errorf("%d bytes too little: %v", short, err)
			case device.PeakBytes() != 0:
				t.Errorf("%d bytes were taken before the refusal", device.PeakBytes())
			}
			if err := device.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// wary is a device whose queues make no call that they were not prepared for.
type wary struct{ kernels.Device }

type waryQueue struct {
	kernels.Queue
	known map[string]bool
	err   error
}

func (d wary) NewQueue() (kernels.Queue, error) {
	q, err := d.Device.NewQueue()
	return &waryQueue{Queue: q, known: map[string]bool{}}, err
}

func (q *waryQueue) Prepare(c kernels.Call) error {
	q.known[form(c)] = true
	return nil
}

// form returns what a call's need of memory may depend on. A sum of squares needs more with its
// length; the optimizer's element-wise updates have none.
func form(c kernels.Call) string {
	if c.Op == kernels.OpSumSquares {
		return "sum of squares"
	}
	var types []kernels.DType
	for _, v := range c.Args {
		if v.Present() {
			types = append(types, v.Buf.DType())
		}
	}
	return fmt.Sprint(c.Op, c.Dims, c.Flags, types)
}

func (q *waryQueue) Do(c kernels.Call) {
	if q.err == nil && !q.known[form(c)] && !needless[c.Op] {
		q.err = fmt.Errorf("%w: %v", errUnprepared, c)
	}
	q.Queue.Do(c)
}

func (q *waryQueue) Sync() error { return errors.Join(q.err, q.Queue.Sync()) }

// needless are the calls that nothing has to be prepared for.
var needless = map[kernels.Op]bool{kernels.OpFill: true, kernels.OpAdd: true, kernels.OpAdamW: true, kernels.OpScale: true}

var errUnprepared = errors.New("a call that nobody prepared")

// TestStepsMakeOnlyPreparedCalls: what a device needs besides buffers is there before a step.
func TestStepsMakeOnlyPreparedCalls(t *testing.T) {
	runs := families()
	runs["gpt2"], runs["gpt2 in bf16"], runs["lora in bf16"] = testRun(), halved(testRun()), halved(runs["lora"])
	for name, run := range runs {
		for _, bounds := range [][]int{{0}, {0, 2}} {
			var steps atomic.Int64
			trainBy(t, Config{
				Run: run, Plan: cut(run, "1f1b", bounds), Keeper: from{&memoryKeeper{}, 0}, Data: patterned{run.Model.Context},
				OnStep: func(StepResult) { steps.Add(1) },
			}, func(d kernels.Device) kernels.Device { return wary{d} })
			if steps.Load() == 0 {
				t.Errorf("%s, %v: no step", name, bounds)
			}
		}
	}
}
