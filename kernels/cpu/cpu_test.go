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

func TestConform(t *testing.T) {
	for _, v := range candidates() {
		t.Run(v.name, func(t *testing.T) {
			t.Setenv(VariantEnv, v.name)
			conform.Run(t, newDevice(t, Options{Threads: 3}))
		})
	}
}

func TestSelfTest(t *testing.T) {
	if err := conform.SelfTest(newDevice(t, Options{})); err != nil {
		t.Error(err)
	}
}
