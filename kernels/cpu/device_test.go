package cpu

import (
	"errors"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"pnode/kernels"
)

func TestVariantOverride(t *testing.T) {
	t.Setenv(VariantEnv, "generic")
	if got := newDevice(t, Options{}).Variant(); got != "generic" {
		t.Errorf("variant is %s, want generic", got)
	}
	t.Setenv(VariantEnv, "sse9")
	_, err := New(Options{})
	if err == nil {
		t.Fatal("no error for an instruction set that does not exist")
	}
	wanted := []string{"PNODE_CPU=sse9", runtime.GOARCH}
	for _, v := range candidates() {
		wanted = append(wanted, v.name)
	}
	for _, part := range wanted {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error is %q, want %q in it", err, part)
		}
	}
}

// TestKindOverrides: a device is of the kind that another one says it is, whatever the environment has.
func TestKindOverrides(t *testing.T) {
	t.Setenv(VariantEnv, "generic")
	for _, c := range candidates() {
		if got := newDevice(t, Options{Kind: runtime.GOARCH + "/" + c.name}); got.Variant() != c.name || kernels.KindOf(got) != c.kind() {
			t.Errorf("asked for %s, got %s, a %s", c.name, got.Variant(), kernels.KindOf(got))
		}
	}
	for _, kind := range []string{"generic", "mips/generic", runtime.GOARCH + "/sse9"} {
		_, err := New(Options{Kind: kind})
		if !errors.Is(err, ErrKind) || !strings.Contains(err.Error(), kind) || !strings.Contains(err.Error(), runtime.GOARCH+"/generic") {
			t.Errorf("%s: error is %v", kind, err)
		}
	}
	wrong := generic()
	wrong.product.multiply = func(t *tile) { c := *t; c.K--; multiplyGeneric(&c) }
	if _, err := ofKind([]candidate{newCandidate(wrong)}, wrong.kind()); !errors.Is(err, ErrKind) {
		t.Errorf("a kind that computes wrong: error is %v", err)
	}
}

func TestNegativeThreads(t *testing.T) {
	if _, err := New(Options{Threads: -1}); err == nil {
		t.Error("no error for -1 threads")
	}
}

// TestVerifyFindsWrongKernels runs the start-up check on micro-kernels that lose a
// product, forget to accumulate, or write outside of their tile.
func TestVerifyFindsWrongKernels(t *testing.T) {
	broken := map[string]func(t *tile){
		"short":  func(t *tile) { c := *t; c.K--; multiplyGeneric(&c) },
		"forget": func(t *tile) { c := *t; c.Accumulate = 0; multiplyGeneric(&c) },
		"wide":   func(t *tile) { multiplyGeneric(t); unsafe.Slice(t.C, 5)[4]++ },
	}
	for name, multiply := range broken {
		v := generic()
		v.product.multiply = multiply
		if v.verify() == nil {
			t.Errorf("%s: passes", name)
		}
	}
}

func TestBuffers(t *testing.T) {
	dev := newDevice(t, Options{Threads: 1})
	for _, n := range []int{0, 1, 1000, 1 << 20} {
		buf, err := dev.Alloc(kernels.F32, n)
		if err != nil {
			t.Fatal(err)
		}
		mem := floats(kernels.Whole(buf))
		if n > 0 && uintptr(unsafe.Pointer(&mem[0]))%64 != 0 {
			t.Errorf("%d floats are not aligned", n)
		}
		for i, x := range mem {
			if x != 0 {
				t.Fatalf("element %d of %d is %v", i, n, x)
			}
		}
		buf.Free()
		buf.Free()
		if err := dev.Supports(kernels.Fill(kernels.View{Buf: buf, Len: n}, n, 0)); n > 0 && !errors.Is(err, kernels.ErrBadCall) {
			t.Errorf("call on a freed buffer: %v", err)
		}
	}
	if _, err := dev.Alloc(kernels.F32, math.MaxInt/8); !errors.Is(err, kernels.ErrOutOfMemory) {
		t.Errorf("alloc of everything: %v", err)
	}
}

func TestRefusals(t *testing.T) {
	dev, other := newDevice(t, Options{Threads: 2}), newDevice(t, Options{Threads: 1})
	tokens, err := dev.Alloc(kernels.I32, 2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tokens.Free)
	out, wte := upload(t, dev, make([]float32, 6)), upload(t, dev, make([]float32, 12))
	embed := kernels.EmbedForward(out, kernels.Whole(tokens), wte, absent, 1, 2, 3, 4)
	ints(kernels.Whole(tokens))[1] = 4
	if err := dev.run(embed); !errors.Is(err, kernels.ErrBadCall) || !strings.Contains(err.Error(), "tokens[1] is 4") {
		t.Errorf("token outside of the vocabulary: %v", err)
	}
	ints(kernels.Whole(tokens))[1] = 3
	if err := dev.run(embed); err != nil {
		t.Error(err)
	}
	if err := other.Supports(embed); !errors.Is(err, kernels.ErrBadCall) {
		t.Errorf("buffers of another device: %v", err)
	}
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
	if err := dev.run(embed); !errors.Is(err, errClosed) {
		t.Errorf("call on a closed device: %v", err)
	}
}

// TestQueuesAtTheSameTime uses one device from several goroutines.
func TestQueuesAtTheSameTime(t *testing.T) {
	dev := newDevice(t, Options{Threads: 3})
	const n = 70000
	var group sync.WaitGroup
	for g := range 4 {
		x := upload(t, dev, make([]float32, n))
		group.Go(func() {
			q, err := dev.NewQueue()
			if err != nil {
				t.Error(err)
				return
			}
			for range 50 {
				q.Do(kernels.Fill(x, n, float32(g+1)))
				q.Do(kernels.Add(x, x, x, n))
			}
			got := make([]float32, n)
			q.Read(kernels.Float32Bytes(got), x)
			if err := q.Close(); err != nil {
				t.Error(err)
			}
			for i, v := range got {
				if v != float32(2*(g+1)) {
					t.Errorf("queue %d: element %d is %v", g, i, v)
					return
				}
			}
		})
	}
	group.Wait()
}

// TestNaNStays makes sure that a number that is none is seen downstream.
func TestNaNStays(t *testing.T) {
	nan := float32(math.NaN())
	for _, v := range candidates() {
		const n = 39 // more than two vectors of any variant, and a rest
		x, ones, out := make([]float32, n), make([]float32, n), make([]float32, n)
		for i := range x {
			x[i], ones[i] = float32(i%9), 1
			if i%5 == 4 {
				x[i] = nan
			}
		}
		v.gelu(out, x)
		checkNaN(t, v.name+" gelu", out)
		v.geluGrad(out, ones, x)
		checkNaN(t, v.name+" geluGrad", out)
		v.swiglu(out, x, ones)
		checkNaN(t, v.name+" swiglu", out)
		up := make([]float32, n)
		v.swigluGrad(out, up, ones, x, ones)
		checkNaN(t, v.name+" swigluGrad", out)
		checkNaN(t, v.name+" swigluGrad of up", up)
		if sum := v.powers(out, x, 1, 0); sum == sum {
			t.Errorf("%s powers: sum is %v", v.name, sum)
		}
		checkNaN(t, v.name+" powers", out)
		copy(out, x)
		v.softmaxGrad(out, up, 1, 0)
		checkNaN(t, v.name+" softmaxGrad", out)
		if _, sum := v.softmax(x, -9); sum == sum {
			t.Errorf("%s softmax: sum is %v", v.name, sum)
		}
	}
}

// checkNaN wants NaN at every fifth element only.
func checkNaN(t *testing.T, name string, x []float32) {
	t.Helper()
	for i, v := range x {
		if math.IsNaN(float64(v)) != (i%5 == 4) {
			t.Errorf("%s: element %d is %v", name, i, v)
		}
	}
}

// TestHalvesAreSupported names what conform would leave out if it were refused.
func TestHalvesAreSupported(t *testing.T) {
	dev := newDevice(t, Options{Threads: 1})
	half, err := dev.Alloc(kernels.BF16, 6)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(half.Free)
	tokens, err := dev.Alloc(kernels.I32, 2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tokens.Free)
	x, h := upload(t, dev, make([]float32, 6)), kernels.Whole(half)
	for _, c := range []kernels.Call{
		kernels.Cast(h, x, 6), kernels.Cast(x, h, 6),
		kernels.EmbedForward(x, kernels.Whole(tokens), h, absent, 1, 2, 3, 2),
	} {
		if err := dev.Supports(c); err != nil {
			t.Error(err)
		}
	}
}

// TestTasksAreTakenInOrder looks at the order of each worker's tasks: the longest come first, and a
// task asks for the memory of the one that is after it.
func TestTasksAreTakenInOrder(t *testing.T) {
	for _, threads := range []int{1, 3} {
		p := newPool(threads)
		taken := map[*worker]*[]int{}
		for _, w := range p.workers {
			taken[w] = new([]int)
		}
		const tasks = 200
		p.run(tasks, func(w *worker, task int) { *taken[w] = append(*taken[w], task) })
		var all []int
		for _, list := range taken {
			if !slices.IsSorted(*list) {
				t.Errorf("%d threads: a worker took its tasks in the order %v", threads, *list)
			}
			all = append(all, *list...)
		}
		slices.Sort(all)
		if len(all) != tasks || all[0] != 0 || all[tasks-1] != tasks-1 {
			t.Errorf("%d threads took the tasks %v, want each of %d once", threads, all, tasks)
		}
		if next := p.after(5); next != 5+threads {
			t.Errorf("after(5) is %d with %d threads", next, threads)
		}
		p.close()
	}
}

// TestArithmeticCounts what it does: more where products of BF16 are of pairs.
func TestArithmeticCounts(t *testing.T) {
	const rounds, threads = 1000, 2
	for _, c := range candidates() {
		dev := newDevice(t, Options{Threads: threads, Kind: c.kind()})
		want := int64(2 * 12 * c.peakLanes * rounds * threads)
		pairs := want
		switch c.name {
		case "avx512bf16":
			pairs *= 2
		case "neonbf16":
			pairs *= 4
		}
		for dtype, want := range map[kernels.DType]int64{kernels.F32: want, kernels.BF16: pairs} {
			if got, err := dev.Arithmetic(dtype, rounds); err != nil || got != want {
				t.Errorf("%s: %v has %d operations (%v), want %d", c.name, dtype, got, err, want)
			}
		}
	}
}
