package cuda

import (
	"slices"
	"strings"
	"testing"

	"pnode/kernels"
	"pnode/kernels/conform"
	"pnode/kernels/gpu"
)

// openWithBLAS opens the active fake's card with its cuBLASLt.
func openWithBLAS(t *testing.T) *Device {
	t.Helper()
	list := fakeCards(t)
	list[0].loadBLAS = fakeBLASLibrary
	dev, err := list[0].Open()
	if err != nil {
		t.Fatal(err)
	}
	return dev
}

// TestBLAS wants products in every form right, by cuBLASLt where it does them and by the
// package's kernels else, and everything given back.
func TestBLAS(t *testing.T) {
	f := newFake(t, openclMachine(t, gpu.MatrixUnits), 1)
	dev := openWithBLAS(t)
	if dev.Products() != "cuBLASLt" || f.blas.products == 0 {
		t.Fatalf("products are by %s", dev.Products())
	}
	before := len(f.launches)
	conform.RunOpForms(t, dev, kernels.OpMatMul)
	own := 0
	for _, l := range f.launches[before:] {
		if strings.HasPrefix(l.Kernel, "matmul_mma") {
			own++
		}
	}
	if own == 0 || f.blas.products < 2*own {
		t.Errorf("%d products by cuBLASLt, %d that it does not do by own kernels", f.blas.products, own)
	}
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
	if f.blas.handles != 0 {
		t.Errorf("%d handles of cuBLASLt are left", f.blas.handles)
	}
}

// TestWorkspaceIsPrepared: memory for products is taken before a step, or never.
func TestWorkspaceIsPrepared(t *testing.T) {
	for _, room := range []bool{true, false} {
		f := newFake(t, openclMachine(t, Info{Compute: 70}.build().geometry), 1)
		f.compute = 70
		dev := openWithBLAS(t)
		out, a, b, q := newBuffer(t, dev, kernels.F32, 64*64), newBuffer(t, dev, kernels.F16, 64*64), newBuffer(t, dev, kernels.F16, 64*64), newQueue(t, dev)
		if !room {
			dev.LimitMemory(workspaceBytes)
		}
		product := kernels.MatMul(out, a, b, kernels.View{}, 64, 64, 64, 0)
		left := dev.MemoryLeft()
		if err := q.(kernels.Preparer).Prepare(product); err != nil {
			t.Fatal(err)
		}
		if took := left - dev.MemoryLeft(); room != (took == workspaceBytes) {
			t.Errorf("room: %v, and %d bytes are taken", room, took)
		}
		dev.LimitMemory(0)
		left, before := dev.MemoryLeft(), f.blas.products
		q.Do(product)
		if err := q.Sync(); err != nil {
			t.Error(err)
		}
		if by := f.blas.products - before; room != (by == 1) || dev.MemoryLeft() != left {
			t.Errorf("room: %v, %d products by cuBLASLt, which takes %d bytes in the step", room, by, left-dev.MemoryLeft())
		}
		for _, err := range []error{q.Close(), dev.Close()} {
			if err != nil {
				t.Error(err)
			}
		}
	}
}

// TestWrongBLAS: cuBLASLt that fails or gives wrong results is left alone, with the reason told.
func TestWrongBLAS(t *testing.T) {
	for _, c := range []struct {
		compute Capability // with units that kernels are for, 80, or that cuBLASLt alone uses
		said    string
		spoil   func(b *fakeBLASState)
	}{
		{70, "cublasLtCreate: cuBLAS error 3", func(b *fakeBLASState) { b.fail = map[blasFunction]int32{blasCreate: 3} }},
		{70, "cublasLtMatmul: cuBLAS error 13", func(b *fakeBLASState) { b.fail = map[blasFunction]int32{blasMatmul: 13} }},
		{80, "conform: matmul", func(b *fakeBLASState) {
			b.factor, b.spoiled = 1.1, map[uintptr]bool{typeBF16: true, typeF16: true}
		}},
	} {
		if c.compute == 80 && testing.Short() {
			continue // TestBLASWrongInAHalf has one half wrong
		}
		f := newFake(t, openclMachine(t, Info{Compute: c.compute}.build().geometry), 1)
		f.compute = c.compute
		c.spoil(f.blas)
		dev := openWithBLAS(t)
		if !strings.Contains(dev.Products(), c.said) || dev.driver.blas != nil {
			t.Errorf("products are by %s, want %s", dev.Products(), c.said)
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
		if f.blas.handles != 0 {
			t.Errorf("%d handles of cuBLASLt are left", f.blas.handles)
		}
	}
}

// TestBLASWrongInAHalf: cuBLASLt that is wrong in one half alone makes the products of the other one, and
// the package's kernels those of this one.
func TestBLASWrongInAHalf(t *testing.T) {
	machine := openclMachine(t, gpu.MatrixUnits)
	for _, c := range []struct {
		half, other kernels.DType
		spoiled     uintptr
		said        string
	}{
		{kernels.BF16, kernels.F16, typeBF16, "cuBLASLt; own kernels in bf16 (conform: matmul"},
		{kernels.F16, kernels.BF16, typeF16, "cuBLASLt; own kernels in f16 (conform: matmul"},
	} {
		f := newFake(t, machine, 1)
		f.blas.factor, f.blas.spoiled = 1.1, map[uintptr]bool{c.spoiled: true}
		dev := openWithBLAS(t)
		if !strings.HasPrefix(dev.Products(), c.said) {
			t.Errorf("products are by %s, want %s", dev.Products(), c.said)
		}
		for half, matters := range map[kernels.DType]bool{c.half: false, c.other: true} {
			f.launches = nil
			before := f.blas.products
			checkProduct(t, dev, half)
			own := slices.ContainsFunc(f.launches, func(l gpu.Launch) bool { return strings.HasPrefix(l.Kernel, "matmul_mma_"+half.String()) })
			if by := f.blas.products - before; (by > 0) != matters || own == matters {
				t.Errorf("%v is wrong: %d products in %v by cuBLASLt, own kernels: %v", c.half, by, half, own)
			}
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
		if f.blas.handles != 0 {
			t.Errorf("%d handles of cuBLASLt are left", f.blas.handles)
		}
	}
}

// checkProduct has a device multiply matrices of a half, with sums in float32.
func checkProduct(t *testing.T, dev *Device, half kernels.DType) {
	t.Helper()
	q := newQueue(t, dev)
	c := conform.Case{Call: kernels.Call{Op: kernels.OpMatMul, Dims: kernels.Dims{136, 136, 72}}, Seed: 1, Halved: []int{1, 2}, F16: half == kernels.F16, Aligned: true}
	if err := conform.Check(dev, q, c); err != nil {
		t.Error(err)
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
}

// TestBLASAloneKnowsTheUnits: on cards of compute capability 7.0, which there are no kernels on matrix
// units for, cuBLASLt multiplies f16, and vector units bf16; and f16 where cuBLASLt is wrong.
func TestBLASAloneKnowsTheUnits(t *testing.T) {
	machine := openclMachine(t, Info{Compute: 70}.build().geometry)
	for _, c := range []struct {
		spoiled map[uintptr]bool
		said    string
		by      int // products by cuBLASLt
	}{
		{nil, "cuBLASLt", 1},
		{map[uintptr]bool{typeF16: true}, "own kernels (cuBLASLt: conform: matmul", 0},
	} {
		f := newFake(t, machine, 1)
		f.compute, f.blas.factor, f.blas.spoiled = 70, 1.1, c.spoiled
		dev := openWithBLAS(t)
		if !strings.HasPrefix(dev.Products(), c.said) {
			t.Errorf("products are by %s, want %s", dev.Products(), c.said)
		}
		for half, by := range map[kernels.DType]int{kernels.BF16: 0, kernels.F16: c.by} {
			f.launches = nil
			before := f.blas.products
			checkProduct(t, dev, half)
			own := slices.ContainsFunc(f.launches, func(l gpu.Launch) bool { return strings.HasPrefix(l.Kernel, "matmul_"+half.String()) })
			if got := f.blas.products - before; got != by || own != (by == 0) {
				t.Errorf("%d products in %v by cuBLASLt, want %d; own kernels: %v", got, half, by, own)
			}
		}
		if f.blas.done[typeBF16] > 0 {
			t.Errorf("cuBLASLt was asked for %d products in bf16", f.blas.done[typeBF16])
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestOwnProducts: the package's kernels multiply where they are asked for.
func TestOwnProducts(t *testing.T) {
	f := newFake(t, openclMachine(t, gpu.MatrixUnits), 1)
	dev := openWithBLAS(t)
	if err := dev.OwnProducts(); err != nil {
		t.Fatal(err)
	}
	by := f.blas.products
	checkProduct(t, dev, kernels.BF16)
	if f.blas.products != by || f.blas.handles != 0 || dev.Products() == "cuBLASLt" {
		t.Errorf("%d products by cuBLASLt, which has %d handles; the device says %q", f.blas.products-by, f.blas.handles, dev.Products())
	}
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
}
