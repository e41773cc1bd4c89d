package hardware

import (
	"testing"

	"pnode/kernels"
	"pnode/kernels/devices"
	"pnode/kernels/null"
)

// gone is a device that gives no memory any more.
type gone struct{ kernels.Device }

func (gone) Name() string { return "opencl:0" }

func (gone) Alloc(kernels.DType, int) (kernels.Buffer, error) { return nil, kernels.ErrLost }

// TestWorkingDevicesAreLeft: the others, or else the processor.
func TestWorkingDevicesAreLeft(t *testing.T) {
	lost, works := devices.Of(gone{}).Devices[0], devices.Of(null.New()).Devices[0]
	for name, c := range map[string]struct {
		set  []devices.Device
		want string
		lost int
	}{
		"nothing is lost": {[]devices.Device{works}, works.Name(), 0},
		"one of two":      {[]devices.Device{lost, works}, works.Name(), 1},
		"all":             {[]devices.Device{lost}, devices.CPU, 1},
	} {
		set, reasons, err := working(&devices.Set{Devices: c.set}, 1)
		if err != nil {
			t.Fatal(err)
		}
		if len(set.Devices) != 1 || set.Devices[0].Name() != c.want || len(reasons) != c.lost {
			t.Errorf("%s: %v remains, want %s; lost: %q", name, set.Devices, c.want, reasons)
		}
		if err := set.Close(); err != nil {
			t.Error(err)
		}
	}
}
