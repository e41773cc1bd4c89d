package host

import (
	"bytes"
	"errors"
	"testing"

	"pnode/kernels"
)

// TestMemoryIsZeroedCountedAndGivenBack under a limit that two buffers together exceed.
func TestMemoryIsZeroedCountedAndGivenBack(t *testing.T) {
	var m Memory
	m.LimitMemory(100)
	first, err := m.Alloc(kernels.F32, 20)
	if err != nil {
		t.Fatal(err)
	}
	all := kernels.Whole(first)
	Write(nil, all.Slice(3, 2), []byte{1, 2, 3, 4, 5, 6, 7, 8})
	got := make([]byte, 80)
	Read(nil, got, all)
	if want := append(append(make([]byte, 12), 1, 2, 3, 4, 5, 6, 7, 8), make([]byte, 60)...); !bytes.Equal(got, want) {
		t.Errorf("read %v, want %v", got, want)
	}
	if _, err := m.Alloc(kernels.F32, 6); !errors.Is(err, kernels.ErrOutOfMemory) || m.MemoryLeft() != 20 {
		t.Errorf("24 bytes of 20: %v, %d are left", err, m.MemoryLeft())
	}
	first.Free()
	first.Free()
	if m.MemoryLeft() != 100 || m.PeakBytes() != 80 {
		t.Errorf("%d of 100 bytes are left, %d were taken at most", m.MemoryLeft(), m.PeakBytes())
	}
	if _, err := m.Alloc(kernels.BF16, -1); !errors.Is(err, kernels.ErrBadCall) {
		t.Errorf("a negative count: %v", err)
	}
	halves, err := m.Alloc(kernels.BF16, 5)
	if err != nil || halves.Len() != 5 || halves.DType() != kernels.BF16 || m.MemoryLeft() != 90 {
		t.Errorf("5 halves: %v, %d bytes are left", err, m.MemoryLeft())
	}
	if b, ok := Bytes(kernels.Whole(halves).Slice(1, 3)); !ok || len(b) != 6 {
		t.Errorf("3 halves are %d bytes", len(b))
	}
}
