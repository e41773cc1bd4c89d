// Package cputest opens the processor for tests of what is made of kernels. Only tests import it.
package cputest

import (
	"testing"

	"pnode/kernels"
	"pnode/kernels/cpu"
)

// New opens the processor with one thread, and a queue, until the test ends.
func New(t testing.TB) (kernels.Device, kernels.Queue) {
	t.Helper()
	d, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	q, err := d.NewQueue()
	if err != nil {
		t.Fatal(err)
	}
	return d, q
}

// View allocates n elements of float32 until the test ends.
func View(t testing.TB, d kernels.Device, n int) kernels.View {
	t.Helper()
	b, err := d.Alloc(kernels.F32, n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Free)
	return kernels.Whole(b)
}

// Floats returns the elements of a view of the processor, as they are.
func Floats(v kernels.View) []float32 { return v.Buf.(kernels.HostVisible).Floats(v.Off, v.Len) }
