package node

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

// limitMemory holds devices to what may be taken of them, and gives the names that it allows
// something that are not there. It is what plans count on too, and lasts: a card's own memory has
// a limit in any case, the host's only where the user sets one, as other programs give back and
// take of that meanwhile.
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
		if stretched, ok := d.Device.(*emulate.Device); ok {
			m.LimitMemory(stretched.Profile().HostBytes)
		}
	}
}

// ceiling is the most that may ever be taken of a device that has enough, 0 for no such limit.
func ceiling(f devices.Finding, allowed config.Allowance) int64 {
	if f.Shared {
		return int64(allowed.Bytes)
	}
	return allowed.Within(f.MemoryFor(0))
}

// enough refuses cards of which less may be taken than measuring them takes. The host's memory
// comes and goes, and is the planner's to judge.
func enough(allowed config.Memory) func(devices.Finding) error {
	return func(f devices.Finding) error {
		free, a := f.MemoryFor(0), allowed.Of(f.Name)
		switch may := a.Within(free); {
		case f.Shared || may >= int64(config.LeastMemory):
			return nil
		case free < int64(config.LeastMemory):
			return fmt.Errorf("other programs and its driver leave %s of its %s, a run takes %v at least: end other programs that use it", inMB(free), inMB(f.MemoryBytes), config.LeastMemory)
		default:
			return fmt.Errorf("--memory allows %v of it, which is %s of the %s that are free, a run takes %v at least: allow more with --memory, or let fewer local nodes share it", a, inMB(may), inMB(free), config.LeastMemory)
		}
	}
}

func inMB(bytes int64) string { return fmt.Sprintf("%dMB", bytes/int64(config.MB)) }

// outOfMemory says of a stage that does not fit what can be done about it.
func outOfMemory(err error) error {
	if !errors.Is(err, kernels.ErrOutOfMemory) {
		return err
	}
	return fmt.Errorf("%w: end other programs that use the device, allow more with --memory (for what is kept in host memory, of cpu), have a stage need less with --recompute block, --storage bf16 or a lower --micro-batch, or let another node join", err)
}
