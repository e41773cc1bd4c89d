package opencl

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"pnode/kernels"
	"pnode/kernels/conform"
	"pnode/kernels/cpu"
	"pnode/pipeline/model/parity"
)

// shared is the device of openDevice: opening one runs its self-test.
var shared *Device

func TestMain(m *testing.M) {
	code := m.Run()
	if shared != nil {
		if err := shared.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// openDevice returns the first device, which tests share and leave open, or skips the test on a machine
// without one.
func openDevice(t testing.TB) *Device {
	t.Helper()
	info := firstDevice(t)
	if shared == nil {
		var err error
		if shared, err = info.Open(); err != nil {
			t.Fatal(err)
		}
	}
	return shared
}

func firstDevice(t testing.TB) Info {
	t.Helper()
	return conform.First(t, List, ErrNoLibrary)
}

func open(t testing.TB, info Info) *Device {
	t.Helper()
	dev, err := info.Open()
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

// TestConform is the suite, also for devices with work-groups of 64 items.
func TestConform(t *testing.T) {
	all := []conform.Named{{Name: "as it is", Device: openDevice(t)}}
	if !testing.Short() { // it compiles every kernel once more
		info := firstDevice(t)
		info.GroupItems = 64
		dev := open(t, info)
		if got := dev.Geometry().Side; got != 8 {
			t.Fatalf("groups have %d x %d items, want 8 x 8", got, got)
		}
		all = append(all, conform.Named{Name: "in small groups", Device: dev})
	}
	conform.RunAll(t, all...)
}

// TestLargeScores: attention stays right where scores are large. Package cuda tests what stands in for
// NVIDIA's matrix units.
func TestLargeScores(t *testing.T) {
	dev := openDevice(t)
	for _, half := range []kernels.DType{kernels.BF16, kernels.F16} {
		conform.RunLargeScores(t, dev, half, 0.01)
	}
}

// TestTrainsLikeTheCPU that rounds no factors of attention, as a processor with products of BF16 would: these kernels do not.
func TestTrainsLikeTheCPU(t *testing.T) {
	parity.Run(t, openDevice(t), func() (kernels.Device, error) {
		return cpu.New(cpu.Options{Threads: 1, Kind: runtime.GOARCH + "/generic"})
	}, parity.Stored)
}
