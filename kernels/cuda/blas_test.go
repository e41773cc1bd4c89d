package cuda

import (
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
	conform.RunOp(t, dev, kernels.OpMatMul)
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
		f := newFake(t, openclMachine(t, gpu.MatrixUnits), 1)
		dev := openWithBLAS(t)
		out, a, b, q := newBuffer(t, dev, kernels.F32, 64*64), newBuffer(t, dev, kernels.BF16, 64*64), newBuffer(t, dev, kernels.BF16, 64*64), newQueue(t, dev)
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
	machine := openclMachine(t, gpu.MatrixUnits)
	for want, spoil := range map[string]func(b *fakeBLASState){
		"cublasLtCreate: cuBLAS error 3":  func(b *fakeBLASState) { b.fail = map[blasFunction]int32{blasCreate: 3} },
		"cublasLtMatmul: cuBLAS error 13": func(b *fakeBLASState) { b.fail = map[blasFunction]int32{blasMatmul: 13} },
		"conform: matmul":                 func(b *fakeBLASState) { b.factor = 1.1 },
	} {
		f := newFake(t, machine, 1)
		spoil(f.blas)
		dev := openWithBLAS(t)
		if !strings.Contains(dev.Products(), want) || dev.driver.blas != nil {
			t.Errorf("products are by %s, want %s", dev.Products(), want)
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
		if f.blas.handles != 0 {
			t.Errorf("%d handles of cuBLASLt are left", f.blas.handles)
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
	conform.RunOpHalves(t, dev, kernels.OpMatMul, kernels.BF16)
	if f.blas.products != by || f.blas.handles != 0 || dev.Products() == "cuBLASLt" {
		t.Errorf("%d products by cuBLASLt, which has %d handles; the device says %q", f.blas.products-by, f.blas.handles, dev.Products())
	}
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
}
