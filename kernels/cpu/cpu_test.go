package cpu

import (
	"testing"

	"pnode/kernels"
	"pnode/kernels/conform"
)

func newDevice(t testing.TB, o Options) *Device {
	t.Helper()
	dev, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	return dev
}

// TestConform is the suite for all variants that this processor can run, and for what imitates others.
func TestConform(t *testing.T) {
	var all []conform.Named
	for _, v := range candidates() {
		t.Setenv(VariantEnv, v.name)
		all = append(all, conform.Named{Name: v.name, Device: newDevice(t, Options{Threads: 3})})
	}
	for _, v := range imitations(t) {
		dev := newDevice(t, Options{Threads: 2})
		dev.v = v
		all = append(all, conform.Named{Name: v.name, Device: dev})
	}
	conform.RunAll(t, all...)
}

// TestLargeScores: probabilities that the backward pass computes anew are right at scores of any size.
func TestLargeScores(t *testing.T) {
	for _, v := range candidates() {
		t.Run(v.name, func(t *testing.T) {
			t.Setenv(VariantEnv, v.name)
			dev := newDevice(t, Options{Threads: 2})
			for _, half := range []kernels.DType{kernels.BF16, kernels.F16} {
				conform.RunLargeScores(t, dev, half, 0.05)
			}
		})
	}
}

func TestSelfTest(t *testing.T) {
	if err := conform.SelfTest(newDevice(t, Options{})); err != nil {
		t.Error(err)
	}
}
