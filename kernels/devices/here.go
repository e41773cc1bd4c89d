package devices

import (
	"pnode/kernels"
	"pnode/kernels/cpu"
)

// OpenHere opens a device without a look at its driver in a process of its own: for a process that
// is one. What counts of the finding is its name, and whether it is to be plain.
func OpenHere(f Finding, threads int) (kernels.Device, error) {
	if f.Name != CPU {
		return open(f)
	}
	device, err := cpu.New(cpu.Options{Threads: threads})
	if err != nil {
		return nil, err // not device, which as a kernels.Device would not be nil
	}
	return device, nil
}
