package kernels

import (
	"errors"
	"slices"
	"testing"
)

// heldQueue keeps the last bytes that were written.
type heldQueue struct {
	Queue
	to      View
	written []float32
}

func (q *heldQueue) Write(dst View, src []byte) {
	q.to, q.written = dst, make([]float32, len(src)/4)
	copy(Float32Bytes(q.written), src)
}
func (q *heldQueue) Sync() error { return nil }

// visibleBuffer is a buffer in the host's memory.
type visibleBuffer struct {
	hostBuffer
	mem []float32
}

func (b *visibleBuffer) Floats(off, n int) []float32 { return b.mem[off : off+n] }

func TestFillFrom(t *testing.T) {
	ones := func(dst []float32) error {
		for i := range dst {
			dst[i] = 1
		}
		return nil
	}
	hidden, q := View{Buf: &hostBuffer{F32, 5}, Off: 2, Len: 2}, &heldQueue{}
	if err := FillFrom(q, hidden, ones); err != nil || q.to != hidden || !slices.Equal(q.written, []float32{1, 1}) {
		t.Errorf("wrote %v to %v, error %v", q.written, q.to, err)
	}
	seen := &visibleBuffer{hostBuffer{F32, 5}, make([]float32, 5)}
	q = &heldQueue{}
	if err := FillFrom(q, View{Buf: seen, Off: 2, Len: 2}, ones); err != nil || q.written != nil || !slices.Equal(seen.mem, []float32{0, 0, 1, 1, 0}) {
		t.Errorf("memory is %v after a write of %v, error %v", seen.mem, q.written, err)
	}
	broken := errors.New("broken")
	for _, v := range []View{hidden, {Buf: seen, Len: 1}} {
		if err := FillFrom(q, v, func([]float32) error { return broken }); !errors.Is(err, broken) || q.written != nil {
			t.Errorf("error %v, wrote %v", err, q.written)
		}
	}
}
