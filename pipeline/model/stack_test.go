package model

import (
	"errors"
	"strings"
	"testing"

	"pnode/kernels"
	"pnode/kernels/null"
)

// limited is a device that lacks memory or an operation and counts live buffers.
type limited struct {
	*null.Device
	maxCount int        // elements of one buffer; 0: no limit
	lacks    kernels.Op // 0: none
	live     int
}

type limitedBuffer struct {
	kernels.Buffer
	device *limited
}

func (b limitedBuffer) Free() {
	b.device.live--
	b.Buffer.Free()
}

func (d *limited) Alloc(dtype kernels.DType, count int) (kernels.Buffer, error) {
	if d.maxCount > 0 && count > d.maxCount {
		return nil, kernels.ErrOutOfMemory
	}
	buf, err := d.Device.Alloc(dtype, count)
	d.live++
	return limitedBuffer{buf, d}, err
}

func (d *limited) Supports(c kernels.Call) error {
	if c.Op == d.lacks {
		return kernels.ErrUnsupported
	}
	return d.Device.Supports(c)
}

func TestNewStackFailsBeforeAStep(t *testing.T) {
	valid := StackConfig{Model: tiny, End: tiny.Layers(), MicroBatch: tinyBatch, Slots: 1}
	with := func(change func(*StackConfig)) StackConfig {
		c := valid
		change(&c)
		return c
	}
	tests := []struct {
		name   string
		cfg    StackConfig
		device limited
		is     error
		want   string
	}{
		{"model", with(func(c *StackConfig) { c.Model.Heads = 7 }), limited{}, ErrBadConfig, "7 heads"},
		{"empty range", with(func(c *StackConfig) { c.First, c.End = 2, 2 }), limited{}, ErrBadConfig, "end layer is 2: take a value from 3 to 4"},
		{"range outside", with(func(c *StackConfig) { c.End = 9 }), limited{}, ErrBadConfig, "end layer is 9"},
		{"micro-batch", with(func(c *StackConfig) { c.MicroBatch = 0 }), limited{}, ErrBadConfig, "micro-batch is 0"},
		{"moments", with(func(c *StackConfig) { c.Moments = 9 }), limited{}, ErrBadConfig, "moments is 9"},
		{"levels", with(func(c *StackConfig) { c.Recompute = RecomputeBlock.Uniform(3) }), limited{}, ErrBadConfig, "recompute has 3 levels: give one for each of the 4 layers"},
		{"level", with(func(c *StackConfig) { c.Recompute = Recompute(7).Uniform(4) }), limited{}, ErrBadConfig, "recompute of layer 0 is 7"},
		{"storage", with(func(c *StackConfig) { c.Storage = 5 }), limited{}, ErrBadConfig, "storage is 5: take one of 0 (f32), 1 (bf16), 2 (f16)"},
		{"slots", with(func(c *StackConfig) { c.Slots = -1 }), limited{}, ErrBadConfig, "slots is -1"},
		{"memory", with(func(c *StackConfig) { c.Slots = 4096 }), limited{maxCount: 1 << 20}, kernels.ErrOutOfMemory, "saved activations need"},
		{"more memory than an int counts", with(func(c *StackConfig) {
			c.Model, c.MicroBatch, c.Slots = Config{Vocab: 2, Context: maxContext, Blocks: maxBlocks, Heads: maxChannels / maxHeadDim, Channels: maxChannels}, maxMicroBatch, 1
			c.End = c.Model.Layers()
		}), limited{}, kernels.ErrOutOfMemory, "need more than"},
		{"forward op", valid, limited{lacks: kernels.OpGELUForward}, kernels.ErrUnsupported, "layers 0-3 with 1 slots in f32 on null"},
		{"backward op", valid, limited{lacks: kernels.OpAttentionBackward}, kernels.ErrUnsupported, "layers 0-3 with 1 slots in f32 on null"},
		{"cast", with(func(c *StackConfig) { c.Storage = StorageBF16 }), limited{lacks: kernels.OpCast}, kernels.ErrUnsupported, "layers 0-3 with 1 slots in bf16 on null"},
		{"loss", valid, limited{lacks: kernels.OpCrossEntropy}, kernels.ErrUnsupported, "layers 0-3 with 1 slots in f32 on null"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			device := test.device
			device.Device = null.New()
			test.cfg.Device = &device
			_, err := NewStack(test.cfg)
			if !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %v with %q", err, test.is, test.want)
			}
			if device.live != 0 {
				t.Errorf("%d buffers are left after the failure", device.live)
			}
		})
	}
	if _, err := NewStack(valid); !errors.Is(err, ErrBadConfig) || !strings.Contains(err.Error(), "device") {
		t.Errorf("error without a device: %v", err)
	}
}

// TestStackAllocatesOnce checks that there is one buffer of each kind, but for parameters and the two moments, which have one
// a layer, and that Close gives all of them back.
func TestStackAllocatesOnce(t *testing.T) {
	state := 3 * (tiny.Layers() - 1) // the tied embedding and the head are one
	// Gradients, activations, their gradients, a layer's, tokens; parameters, activations and a layer's in BF16 too.
	for storage, want := range map[Storage]int{StorageF32: state + 5, StorageBF16: state + 8, StorageF16: state + 8} {
		device := &limited{Device: null.New()}
		s, err := NewStack(StackConfig{
			Device: device, Model: tiny, End: tiny.Layers(), MicroBatch: tinyBatch, Slots: 3, Moments: 2, Storage: storage,
		})
		must(t, err)
		if device.live != want {
			t.Errorf("a stack of %v has %d buffers, want %d", storage, device.live, want)
		}
		s.Close()
		if device.live != 0 {
			t.Errorf("%d buffers are left after Close", device.live)
		}
	}
}

func TestMisusePanics(t *testing.T) {
	middle, err := NewStack(StackConfig{Device: null.New(), Model: tiny, First: 1, End: 3, MicroBatch: 1, Slots: 2})
	must(t, err)
	defer middle.Close()
	whole, err := NewStack(StackConfig{Device: null.New(), Model: tiny, End: tiny.Layers(), MicroBatch: 1, Slots: 1})
	must(t, err)
	defer whole.Close()
	q, err := null.New().NewQueue()
	must(t, err)
	misuses := map[string]func(){
		"slot":                 func() { middle.Slot(2).Forward(q, Noise{}) },
		"layer":                func() { middle.Params(3) },
		"tokens":               func() { middle.Slot(0).SetTokens(q, nil) },
		"targets":              func() { middle.Slot(0).SetTargets(q, nil) },
		"logits":               func() { middle.Slot(0).Logits(q, 0, 1) },
		"split":                func() { middle.Slot(0).BackwardInput(q, 1) },
		"input of the first":   func() { whole.Slot(0).Input() },
		"gradient of the last": func() { whole.Slot(0).OutputGrad() },
	}
	for name, misuse := range misuses {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			misuse()
		})
	}
}

// TestForwardOnlyHasNoGradients: neither memory for them, nor for a pass that would need it.
func TestForwardOnlyHasNoGradients(t *testing.T) {
	for name, model := range map[string]Config{"gpt2": tiny, "llama": tinyLlama} {
		cfg := StackConfig{Model: model, End: model.Layers(), MicroBatch: tinyBatch, Slots: 1}
		trains, err := cfg.Memory()
		must(t, err)
		cfg.ForwardOnly = true
		want, err := cfg.Memory()
		must(t, err)
		device := null.New()
		cfg.Device = device
		s, err := NewStack(cfg)
		must(t, err)
		if got := device.PeakBytes(); want.Grads+want.Deltas != 0 || got != want.Total() || want.Layer >= trains.Layer || want.Saved != trains.Saved {
			t.Errorf("%s: %d bytes, predicted %+v; one that trains has %+v", name, got, want, trains)
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: a backward pass runs", name)
				}
			}()
			s.Slot(0).Backward(nil, 1)
		}()
		s.Close()
	}
}
