package cuda

import (
	"errors"
	"os/exec"
	"path/filepath"
	"testing"

	"pnode/kernels"
)

// builtDevice is the card of testdata/libcuda.c, in a library as a driver is one; the test is
// skipped where there is no C compiler, or no library can be opened.
func builtDevice(t testing.TB) *Device {
	t.Helper()
	compiler, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip(err)
	}
	file := filepath.Join(t.TempDir(), "libcuda.so.1")
	said, err := exec.Command(compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", file, "testdata/libcuda.c").CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, said)
	}
	lib, err := open([]string{file})
	if errors.Is(err, ErrNoLibrary) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	list, err := lib.list()
	if err != nil {
		t.Fatal(err)
	}
	if i := list[0]; i.Name != "Host in disguise" || i.PCI != "0000:01:00.0" || i.Compute != 90 || i.MemoryBytes != 5<<32 || i.Multiprocessors != 132 {
		t.Errorf("the card: %+v", i)
	}
	dev, err := list[0].open()
	return closing(t, dev, err)
}

// TestLibrary computes with functions that are found in a library by their names.
func TestLibrary(t *testing.T) {
	dev := builtDevice(t)
	if free, err := dev.FreeBytes(); free != 3<<32 || err != nil {
		t.Errorf("%d bytes are free, %v", free, err)
	}
	x, sums, q := newBuffer(t, dev, kernels.F32, 300*70), newBuffer(t, dev, kernels.F32, 70), newQueue(t, dev)
	q.Do(kernels.Fill(x, x.Len, 0.5))
	q.Write(x.Slice(1, 2), kernels.Float32Bytes([]float32{3, 4}))
	q.Do(kernels.ColumnSum(sums, x, 300, 70, 0))
	got := make([]float32, 4)
	before := q.Record()
	q.Read(kernels.Float32Bytes(got), sums.Slice(0, 4))
	if after := q.Record(); before.Sync() != nil || after.Sync() != nil || after.Time().Before(before.Time()) {
		t.Errorf("events at %v and %v, %v", before.Time(), after.Time(), after.Sync())
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	if want := [4]float32{150, 152.5, 153.5, 150}; [4]float32(got) != want {
		t.Errorf("sums %v, want %v", got, want)
	}
}

// TestDoAllocatesNothing: a step makes hundreds of calls.
func TestDoAllocatesNothing(t *testing.T) {
	dev := builtDevice(t)
	x, y, q := newBuffer(t, dev, kernels.F32, 64), newBuffer(t, dev, kernels.F32, 8), newQueue(t, dev)
	for _, c := range []kernels.Call{kernels.Fill(x, 64, 1), kernels.ColumnSum(y, x, 8, 8, 0)} {
		q.Do(c) // makes scratch memory
		if n := testing.AllocsPerRun(20, func() { q.Do(c) }); n != 0 {
			t.Errorf("%v: %v allocations", c, n)
		}
	}
	host := make([]byte, 256)
	q.Write(x, host)
	if n := testing.AllocsPerRun(20, func() { q.Write(x, host) }); n != 0 {
		t.Errorf("a copy makes %v allocations", n)
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
}

// BenchmarkLaunchOnAStandIn measures what a call costs the host with a driver that costs next to
// nothing: the plan, the context of the thread, the call of C.
func BenchmarkLaunchOnAStandIn(b *testing.B) {
	dev := builtDevice(b)
	x, q := newBuffer(b, dev, kernels.F32, 1), newQueue(b, dev)
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		q.Do(kernels.Fill(x, 1, 1))
		if n%64 == 0 {
			if err := q.Sync(); err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := q.Close(); err != nil {
		b.Error(err)
	}
}
