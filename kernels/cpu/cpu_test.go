package cpu

import (
	"testing"

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

func TestSelfTest(t *testing.T) {
	if err := conform.SelfTest(newDevice(t, Options{})); err != nil {
		t.Error(err)
	}
}
