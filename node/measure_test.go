package node

import (
	"testing"

	"pnode/kernels/devices"
)

func TestMemoryOf(t *testing.T) {
	const host, gib = 3 << 30, 1 << 30
	for _, c := range []struct {
		finding devices.Finding
		want    int64
	}{
		{devices.Finding{Shared: true, MemoryBytes: 64 * gib}, host},
		{devices.Finding{Shared: true, AllocBytes: 2 * gib}, 2 * gib},
		{devices.Finding{MemoryBytes: 16 * gib}, 15 * gib},
		{devices.Finding{MemoryBytes: 16 * gib, AllocBytes: 4 * gib}, 4 * gib},
		{devices.Finding{MemoryBytes: 16 * gib, FreeBytes: 10 * gib}, 9 * gib},
		{devices.Finding{MemoryBytes: 16 * gib, FreeBytes: gib / 2}, 0},
	} {
		if got := memoryOf(c.finding, host); got != c.want {
			t.Errorf("%+v: %d bytes, want %d", c.finding, got, c.want)
		}
	}
}
