package kernels

import (
	"errors"
	"math"
	"strings"
	"testing"
)

func TestBudget(t *testing.T) {
	var b Budget
	for _, bytes := range []int64{math.MaxInt64, 700} {
		if err := b.Take(bytes); err != nil {
			t.Fatalf("%d bytes without a limit: %v", bytes, err)
		}
		if bytes > 700 {
			b.Give(bytes)
		}
	}
	b.LimitMemory(1000)
	if err := b.Take(300); err != nil || b.MemoryLeft() != 0 {
		t.Errorf("all of it: %v, %d bytes are left", err, b.MemoryLeft())
	}
	if err := b.Take(1); !errors.Is(err, ErrOutOfMemory) || !strings.Contains(err.Error(), "1 bytes are wanted, 1000 of 1000") {
		t.Errorf("a byte more: %v", err)
	}
	b.Give(400)
	b.LimitMemory(500)
	if left := b.MemoryLeft(); left != 0 {
		t.Errorf("%d bytes are left of less than is taken", left)
	}
	if b.LimitMemory(0); b.Take(math.MaxInt64-600) != nil || b.PeakBytes() != math.MaxInt64 {
		t.Errorf("a limit that is gone: %d bytes at most", b.PeakBytes())
	}
}
