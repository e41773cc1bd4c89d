package opencl

import (
	"errors"
	"testing"

	"pnode/kernels/conform"
)

// openDevice opens the first device, or skips the test on a machine without one.
func openDevice(t testing.TB) *Device {
	t.Helper()
	list, err := List(Options{CPU: true})
	if errors.Is(err, ErrNoLibrary) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(list) == 0 {
		t.Skip("OpenCL has no devices here")
	}
	dev, err := list[0].Open()
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

func TestConform(t *testing.T) { conform.Run(t, openDevice(t)) }
