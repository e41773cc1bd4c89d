package bench

import (
	"fmt"
	"math"

	"github.com/shirou/gopsutil/v4/mem"

	"pnode/kernels"
	"pnode/kernels/devices"
)

// memoryFor is the limit in bytes of what this program's side takes of a device's memory, as of a
// node: 0 for none, where the driver does not tell how much there is. Beside PyTorch, which may take
// twice as much for the same step, it is a third of the host's.
func memoryFor(f devices.Finding, besideTorch bool) (int64, error) {
	if !f.Shared && f.MemoryBytes == 0 {
		return 0, nil
	}
	memory, err := mem.VirtualMemory()
	if err != nil {
		return 0, fmt.Errorf("free memory: %w", err)
	}
	host := int64(min(memory.Available, math.MaxInt64))
	if besideTorch {
		host /= 3
	}
	return max(1, f.MemoryFor(host)), nil // 0 would be none
}

// limit holds a device to so many bytes, or to nothing for 0.
func limit(d kernels.Device, bytes int64) {
	if limited, ok := d.(kernels.Limited); ok {
		limited.LimitMemory(bytes)
	}
}
