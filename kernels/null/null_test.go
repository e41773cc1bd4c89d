package null

import (
	"errors"
	"testing"

	"pnode/kernels"
)

func TestCounts(t *testing.T) {
	dev := New()
	a, err := dev.Alloc(kernels.F32, 6)
	if err != nil {
		t.Fatal(err)
	}
	b, err := dev.Alloc(kernels.F32, 12)
	if err != nil {
		t.Fatal(err)
	}
	out, err := dev.Alloc(kernels.F32, 8)
	if err != nil {
		t.Fatal(err)
	}
	q, err := dev.NewQueue()
	if err != nil {
		t.Fatal(err)
	}
	mul := kernels.MatMul(kernels.Whole(out), kernels.Whole(a), kernels.Whole(b), kernels.View{}, 2, 4, 3, 0)
	q.Do(mul)
	mul.Flags = kernels.Accumulate
	q.Do(mul)
	q.Do(kernels.Copy(kernels.Whole(b).Slice(0, 6), kernels.Whole(a), 6))
	if err := q.Sync(); err != nil {
		t.Fatal(err)
	}
	// 2*2*4*3 FLOPs twice; 6+12+8 floats, then 8 of them twice.
	if got, want := dev.ByOp(kernels.OpMatMul), (Count{Calls: 2, FLOPs: 96, Bytes: 4 * (26 + 34)}); got != want {
		t.Errorf("matmul: %+v, want %+v", got, want)
	}
	if got, want := dev.ByClass(kernels.ClassElementwise), (Count{Calls: 1, Bytes: 48}); got != want {
		t.Errorf("elementwise: %+v, want %+v", got, want)
	}
	if got, want := dev.Total(), (Count{Calls: 3, FLOPs: 96, Bytes: 288}); got != want {
		t.Errorf("total: %+v, want %+v", got, want)
	}
	b.Free()
	b.Free()
	if _, err := dev.Alloc(kernels.I32, 1); err != nil {
		t.Fatal(err)
	}
	if got := dev.PeakBytes(); got != 4*26 {
		t.Errorf("peak is %d bytes, want %d", got, 4*26)
	}
	dev.Reset()
	if got := dev.Total(); got != (Count{}) {
		t.Errorf("after Reset: %+v", got)
	}
}

func TestBadCallSticks(t *testing.T) {
	dev := New()
	buf, err := dev.Alloc(kernels.F32, 4)
	if err != nil {
		t.Fatal(err)
	}
	q, err := dev.NewQueue()
	if err != nil {
		t.Fatal(err)
	}
	q.Write(kernels.Whole(buf), make([]byte, 15))
	q.Do(kernels.Fill(kernels.Whole(buf), 4, 1))
	if err := q.Sync(); !errors.Is(err, kernels.ErrBadCall) {
		t.Errorf("error is %v", err)
	}
	if got := dev.Total(); got != (Count{}) {
		t.Errorf("counted after an error: %+v", got)
	}
}
