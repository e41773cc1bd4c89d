package opencl

import (
	"errors"
	"testing"

	"pnode/kernels"
	"pnode/pipeline/model"
)

// TestAPreparedStepTakesNoMemory: what a step needs besides the stack is there before the step,
// or is refused there.
func TestAPreparedStepTakesNoMemory(t *testing.T) {
	dev := open(t, firstDevice(t)) // with a limit of its own
	m := model.Config{Vocab: 61, Context: 24, Blocks: 1, Heads: 3, Channels: 24}
	stack, err := model.NewStack(model.StackConfig{Device: dev, Model: m, End: m.Layers(), MicroBatch: 2, Slots: 1, Moments: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer stack.Close()
	step := func(q kernels.Queue) error {
		stack.Slot(0).Forward(q, model.Noise{})
		stack.Slot(0).Backward(q, 1)
		return q.Sync()
	}
	for prepared, want := range map[bool]error{true: nil, false: kernels.ErrOutOfMemory} {
		dev.LimitMemory(0)
		q := newQueue(t, dev)
		if prepared {
			if err := stack.Prepare(q); err != nil {
				t.Fatal(err)
			}
		}
		dev.LimitMemory(1)
		if err := step(q); !errors.Is(err, want) {
			t.Errorf("a step, prepared %v: %v, want %v", prepared, err, want)
		}
		_ = q.Close() // gives the same error again
	}
	dev.LimitMemory(0)
	q := newQueue(t, dev)
	dev.LimitMemory(1)
	if err := stack.Prepare(q); !errors.Is(err, kernels.ErrOutOfMemory) {
		t.Errorf("no room to prepare: %v", err)
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
}
