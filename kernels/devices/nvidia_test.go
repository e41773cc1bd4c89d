//go:build !static

package devices

import (
	"testing"

	"pnode/kernels/cuda/nvml"
)

func TestFreeOf(t *testing.T) {
	m := nvml.Machine{Cards: []nvml.Card{{PCI: "0000:01:00.0", FreeBytes: -1}, {PCI: "0000:02:00.0", FreeBytes: 5}}}
	for pci, want := range map[string]int64{"0000:01:00.0": 0, "0000:02:00.0": 5, "0000:03:00.0": 0} {
		if got := freeOf(m, pci); got != want {
			t.Errorf("%s has %d bytes free, want %d", pci, got, want)
		}
	}
}
