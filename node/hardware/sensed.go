package hardware

import (
	"io/fs"
	"os"
	"runtime"
	"strings"

	"pnode/kernels/devices"
	"pnode/node/hardware/sensors"
)

// Sensors returns a watch of the devices in use. An emulated one has nothing to read.
func (m *Machine) Sensors() *sensors.Watch {
	var sys fs.FS
	if runtime.GOOS == "linux" {
		sys = os.DirFS("/sys")
	}
	return sensors.New(sensors.Options{Devices: m.sensed, Sys: sys, Cards: cards})
}

// sensed returns the devices in use as their sensors are found.
func (m *Machine) sensed() (list []sensors.Device) {
	if m.options.Emulation != nil {
		return nil
	}
	for _, d := range m.inUse().Devices {
		list = append(list, sensorsOf(d.Finding))
	}
	return list
}

// sensorsOf returns where the sensors of a device are. A driver that computes on the processor has the processor's.
func sensorsOf(f devices.Finding) sensors.Device {
	return sensors.Device{
		Name: f.Name, PCI: f.PCI, Processor: f.Name == devices.CPU || f.Processor, NVIDIA: strings.Contains(f.Vendor, "NVIDIA"),
	}
}

// cards asks NVIDIA's library.
func cards() (list []sensors.Card) {
	for _, c := range devices.Cards() {
		list = append(list, sensors.Card(c))
	}
	return list
}
