package hardware

import (
	"testing"

	"pnode/kernels/devices"
	"pnode/node/hardware/sensors"
)

// TestWhereSensorsAre: of cards by their place, of NVIDIA's by its library under either driver, and of whatever computes on the processor there.
func TestWhereSensorsAre(t *testing.T) {
	for _, tt := range []struct {
		found devices.Finding
		want  sensors.Device
	}{
		{devices.Finding{Name: "cpu"}, sensors.Device{Name: "cpu", Processor: true}},
		{devices.Finding{Name: "opencl:0", Processor: true, Vendor: "pocl"}, sensors.Device{Name: "opencl:0", Processor: true}},
		{devices.Finding{Name: "cuda:0", PCI: "0000:65:00.0", Vendor: "NVIDIA"}, sensors.Device{Name: "cuda:0", PCI: "0000:65:00.0", NVIDIA: true}},
		{devices.Finding{Name: "opencl:1", PCI: "0000:65:00.0", Vendor: "NVIDIA Corporation"}, sensors.Device{Name: "opencl:1", PCI: "0000:65:00.0", NVIDIA: true}},
		{devices.Finding{Name: "opencl:2", PCI: "0000:03:00.0", Vendor: "Advanced Micro Devices, Inc."}, sensors.Device{Name: "opencl:2", PCI: "0000:03:00.0"}},
	} {
		if got := sensorsOf(tt.found); got != tt.want {
			t.Errorf("%+v: %+v, want %+v", tt.found, got, tt.want)
		}
	}
}
