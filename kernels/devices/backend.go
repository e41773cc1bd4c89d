package devices

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"pnode/kernels"
	"pnode/kernels/cpu"
)

// CPU is the name of the processor's device.
const CPU = "cpu"

// backend is a kind of device that needs a driver.
type backend struct {
	kind string // of the names: kind:index
	// list gives what the driver says of its devices, by index. An error may come beside
	// devices: of those that could not be listed.
	list func() ([]Finding, error)
	// open makes a device ready, a plain one without its matrix units; it refuses one that computes
	// anything wrong.
	open func(index int, plain bool) (kernels.Device, error)
}

// HasDrivers reports whether this program can open drivers at all.
func HasDrivers() bool { return len(drivers()) > 0 }

// open finds the backend of a device and opens it.
func open(f Finding) (kernels.Device, error) {
	kind, number, _ := strings.Cut(f.Name, ":")
	index, err := strconv.Atoi(number)
	for _, b := range drivers() {
		if b.kind == kind && err == nil {
			return b.open(index, f.Plain)
		}
	}
	return nil, fmt.Errorf("devices: %s: %w", f.Name, errNoBackend)
}

var errNoBackend = errors.New("this program has no such kind of device")

// OpenHere opens a device without a look at its driver in a process of its own: for a process that
// is one. What counts of the finding is its name, and whether it is to be plain.
func OpenHere(f Finding, threads int) (kernels.Device, error) {
	if f.Name != CPU {
		return open(f)
	}
	return opened(cpu.New(cpu.Options{Threads: threads}))
}

// opened returns a device as a kernels.Device, which is nil where there is an error: a nil pointer in it is
// not.
func opened[D kernels.Device](device D, err error) (kernels.Device, error) {
	if err != nil {
		return nil, err
	}
	return device, nil
}
