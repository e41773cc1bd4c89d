package infer

import (
	"errors"
	"math"
	"testing"

	"pnode/kernels"
	"pnode/kernels/conform"
	"pnode/kernels/opencl"
)

// openCL is the first device with an OpenCL driver, or skips the test on a machine without one.
func openCL(t *testing.T) kernels.Device {
	t.Helper()
	device, err := conform.First(t, opencl.List, opencl.ErrNoLibrary).Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := device.Close(); err != nil {
			t.Error(err)
		}
	})
	return device
}

// TestOtherDevicesSayTheSame: the likeliest tokens are those of the processor, and texts are as
// likely.
func TestOtherDevicesSayTheSame(t *testing.T) {
	device := openCL(t)
	for name, c := range families {
		m := openBytes(t, c)
		answer := func(on kernels.Device) (text []byte, score Score) {
			_, err := Generate(t.Context(), m, Prompt{Text: "Once", Tokens: 40, Device: on, Write: func(_ int, b []byte) error {
				text = append(text, b...)
				return nil
			}})
			must(t, err)
			s, err := NewScorer(t.Context(), m, ScoreOptions{Window: 10, Device: on})
			must(t, err)
			score, err = s.Score(t.Context(), []byte("It is a truth universally acknowledged"), nil)
			must(t, errors.Join(err, s.Close()))
			return text, score
		}
		wantText, want := answer(processor(t))
		text, got := answer(device)
		if string(text) != string(wantText) {
			t.Errorf("%s: %q, the processor says %q", name, text, wantText)
		}
		if got.Tokens != want.Tokens || got.Bytes != want.Bytes || math.Abs(got.Nats-want.Nats) > 1e-5*want.Nats {
			t.Errorf("%s: %+v, the processor has %+v", name, got, want)
		}
	}
}

// TestAModelThatDoesNotFitADevice is refused before it is loaded.
func TestAModelThatDoesNotFitADevice(t *testing.T) {
	device, m := processor(t), openBytes(t, families["gpt2"])
	device.(kernels.Limited).LimitMemory(1000)
	_, err := Generate(t.Context(), m, Prompt{Text: "a", Tokens: 1, Device: device, Write: func(int, []byte) error { return nil }})
	if !errors.Is(err, kernels.ErrOutOfMemory) {
		t.Errorf("generating: %v", err)
	}
	if _, err := NewScorer(t.Context(), m, ScoreOptions{Device: device}); !errors.Is(err, kernels.ErrOutOfMemory) {
		t.Errorf("scoring: %v", err)
	}
}
