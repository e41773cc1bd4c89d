package devices

import "testing"

func TestMemoryFor(t *testing.T) {
	const host, gib = 3 << 30, 1 << 30
	for _, c := range []struct {
		finding Finding
		want    int64
	}{
		{Finding{Shared: true, MemoryBytes: 64 * gib}, host},
		{Finding{MemoryBytes: 16 * gib}, 15 * gib},
		{Finding{MemoryBytes: 16 * gib, AllocBytes: 4 * gib}, 15 * gib},
		{Finding{MemoryBytes: 16 * gib, FreeBytes: 10 * gib}, 9 * gib},
		{Finding{MemoryBytes: 16 * gib, FreeBytes: gib / 2}, 0},
	} {
		if got := c.finding.MemoryFor(host); got != c.want {
			t.Errorf("%+v: %d bytes, want %d", c.finding, got, c.want)
		}
	}
}
