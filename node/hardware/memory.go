package hardware

import (
	"errors"
	"fmt"
	"slices"

	"pnode/kernels"
	"pnode/kernels/devices"
	"pnode/kernels/emulate"
	"pnode/kernels/host"
	"pnode/node/config"
)

// limitMemory holds devices to what may be taken of them, and returns the devices that allowed
// names but the set lacks. Plans count on the same limits. A card always has one. The host has one
// only where the user sets it: other programs give back and take of its memory meanwhile.
func limitMemory(set *devices.Set, allowed config.Memory) (missing []string) {
	for _, d := range set.Devices {
		if limited, ok := d.Device.(kernels.Limited); ok {
			limited.LimitMemory(ceiling(d.Finding, allowed.Of(d.Name())))
		}
	}
	return slices.DeleteFunc(allowed.Names(), func(name string) bool { return name == devices.CPU || set.Named(name) != nil })
}

// limitHost holds what stages keep off their devices to what may be taken of the host's memory.
func limitHost(m *host.Memory, set *devices.Set, allowed config.Memory) {
	m.LimitMemory(int64(allowed.Of(devices.CPU).Bytes))
	for _, d := range set.Devices {
		if emulated, ok := d.Device.(*emulate.Device); ok {
			m.LimitMemory(emulated.Profile().HostBytes)
		}
	}
}

// ceiling returns the most bytes that may ever be taken of a device, 0 for no limit.
func ceiling(f devices.Finding, allowed config.Allowance) int64 {
	if f.Shared {
		return int64(allowed.Bytes)
	}
	return allowed.Within(f.MemoryFor(0))
}

// enough returns a check that refuses cards with less memory than measuring takes. The host's
// memory comes and goes, and is the planner's to judge.
func enough(allowed config.Memory) func(devices.Finding) error {
	return func(f devices.Finding) error {
		free, a := f.MemoryFor(0), allowed.Of(f.Name)
		switch may := a.Within(free); {
		case f.Shared || may >= int64(config.LeastMemory):
			return nil
		case free < int64(config.LeastMemory):
			return fmt.Errorf("other programs and its driver leave %s of its %s, a run takes %v at least: end other programs that use it",
				inMB(free), inMB(f.MemoryBytes), config.LeastMemory)
		default:
			return fmt.Errorf("--memory allows %v of it, which is %s of the %s that are free, a run takes %v at least: "+
				"allow more with --memory, or let fewer local nodes share it", a, inMB(may), inMB(free), config.LeastMemory)
		}
	}
}

func inMB(bytes int64) string { return fmt.Sprintf("%dMB", bytes/int64(config.MB)) }

// ExplainMemory adds to an error of a stage that does not fit what the user can do about it.
// Other errors stay as they are.
func ExplainMemory(err error) error {
	if !errors.Is(err, kernels.ErrOutOfMemory) {
		return err
	}
	return fmt.Errorf("%w: end other programs that use the device, allow more with --memory (for what is kept in host memory, of cpu), "+
		"have a stage need less with --recompute block, --storage bf16 or a lower --micro-batch, or let another node join", err)
}
