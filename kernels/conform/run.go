package conform

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"testing"

	"pnode/kernels"
)

// Run is the suite. dev must support every op in f32 that is not optional; what it refuses of others, or to store as a half,
// is left out. Random cases run again, for the same bits. Short runs (-short) are RunForms.
func Run(t *testing.T, dev kernels.Device) { RunAll(t, Named{Device: dev}) }

// RunForms is the suite with each shape and each form of an operation once, instead of every form in
// every shape, and few random cases: for a device whose kernels pass all of it elsewhere.
func RunForms(t *testing.T, dev kernels.Device) { runSuite(t, true, Named{Device: dev}) }

// Named is a device of several at one suite.
type Named struct {
	Name string
	kernels.Device
}

// RunAll is the suite for several devices, each of which gets what the first one gets: so operands
// are drawn, and references computed, once.
func RunAll(t *testing.T, devs ...Named) { runSuite(t, testing.Short(), devs...) }

func runSuite(t *testing.T, few bool, devs ...Named) {
	for _, op := range kernels.Ops() {
		cases := allCases(op, randomCases)
		if few {
			cases = forms(allCases(op, fewRandomCases))
		}
		t.Run(op.String(), func(t *testing.T) { runCases(t, devs, cases) })
	}
	for _, d := range devs {
		t.Run(path.Join(d.Name, "transfers"), func(t *testing.T) { runTransfers(t, d.Device) })
		t.Run(path.Join(d.Name, "events"), func(t *testing.T) {
			if err := CheckEvents(d.Device); err != nil {
				t.Error(err)
			}
		})
		t.Run(path.Join(d.Name, "refusals"), func(t *testing.T) { runRefusals(t, d.Device) })
	}
}

func newQueue(t *testing.T, dev kernels.Device) kernels.Queue {
	t.Helper()
	q, err := dev.NewQueue()
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// RunOpForms is the part of RunForms for one operation.
func RunOpForms(t *testing.T, dev kernels.Device, op kernels.Op) {
	runCases(t, []Named{{Device: dev}}, forms(allCases(op, fewRandomCases)))
}

// RunOpHalves is the part of the suite for one operation whose factors are stored as a half, with fewer
// random cases: where something stands in for matrix units, it takes long. Short runs are RunOpHalfForms.
func RunOpHalves(t *testing.T, dev kernels.Device, op kernels.Op, half kernels.DType) {
	if testing.Short() {
		RunOpHalfForms(t, dev, op, half)
		return
	}
	runCases(t, []Named{{Device: dev}}, ofHalf(half, allCases(op, randomCases/3)))
}

// RunOpHalfForms is the part of RunOpHalves with the shapes that fill matrix units, each of them and each
// form once.
func RunOpHalfForms(t *testing.T, dev kernels.Device, op kernels.Op, half kernels.DType) {
	runCases(t, []Named{{Device: dev}}, forms(ofHalf(half, halvedCases(op))))
}

// ofHalf returns the cases whose factors are stored as a half.
func ofHalf(half kernels.DType, cases []Case) []Case {
	return slices.DeleteFunc(cases, func(c Case) bool { return len(c.Halved) < 2 || c.half() != half })
}

// fewRandomCases is the number of random shapes for each op in RunForms.
const fewRandomCases = 3

// forms returns the cases that are the first with their shape or with their form, which is all but that.
func forms(cases []Case) []Case {
	seen := map[any]bool{}
	return slices.DeleteFunc(cases, func(c Case) bool {
		shape, form := c.Call.Dims, fmt.Sprint(c.Call.Flags, c.Without, c.Halved, c.F16, c.Shared, c.Large)
		again := seen[shape] && seen[form]
		seen[shape], seen[form] = true, true
		return again
	})
}

func allCases(op kernels.Op, random int) []Case {
	cases := fixedCases(op)
	rng := rand.New(rand.NewPCG(2026, uint64(op)))
	for range random {
		cases = append(cases, randomCase(rng, op))
	}
	return cases
}

func runCases(t *testing.T, devs []Named, cases []Case) {
	queues := make([]kernels.Queue, len(devs))
	for i, d := range devs {
		queues[i] = newQueue(t, d.Device)
	}
	for _, c := range cases {
		drawn := newTrial(c)
		for i, d := range devs {
			first, err := drawn.check(d.Device, queues[i])
			if err == nil && c.Seed != 1 { // the random ones
				err = drawn.repeat(d.Device, queues[i], first)
			}
			if (len(c.Halved) > 0 || kernels.Info(c.Call.Op).Optional) && errors.Is(err, kernels.ErrUnsupported) {
				continue
			}
			if err != nil {
				t.Errorf("%s seed %d: %v", d.Name, c.Seed, err)
				if queues[i].Sync() != nil { // sticky: later cases need a fresh queue
					queues[i] = newQueue(t, d.Device)
				}
			}
		}
	}
	for _, q := range queues {
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	}
}

// runTransfers checks fresh buffers and that views are read and written where they are.
func runTransfers(t *testing.T, dev kernels.Device) {
	q := newQueue(t, dev)
	buf, err := dev.Alloc(kernels.F32, 10)
	if err != nil {
		t.Fatal(err)
	}
	defer buf.Free()
	q.Write(kernels.Whole(buf).Slice(3, 2), kernels.Float32Bytes([]float32{7, 8}))
	got := make([]float32, 4)
	q.Read(kernels.Float32Bytes(got), kernels.Whole(buf).Slice(2, 4))
	if err := q.Sync(); err != nil {
		t.Fatal(err)
	}
	if want := [4]float32{0, 7, 8, 0}; [4]float32(got) != want {
		t.Errorf("read %v, want %v", got, want)
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
}

// runRefusals checks that bad calls are refused before they run and that errors stick.
func runRefusals(t *testing.T, dev kernels.Device) {
	buf, err := dev.Alloc(kernels.F32, 64)
	if err != nil {
		t.Fatal(err)
	}
	defer buf.Free()
	all := kernels.Whole(buf)
	a, b, out := all.Slice(0, 16), all.Slice(16, 16), all.Slice(32, 16)
	for name, call := range map[string]kernels.Call{
		"no operation":     {},
		"unknown op":       {Op: 255},
		"short operand":    kernels.MatMul(out, a.Slice(0, 15), b, kernels.View{}, 4, 4, 4, 0),
		"absent operand":   kernels.Add(out, a, kernels.View{}, 16),
		"zero size":        kernels.Copy(out.Slice(0, 0), a.Slice(0, 0), 0),
		"overlap":          kernels.MatMul(a, a, b, kernels.View{}, 4, 4, 4, 0),
		"shifted in place": kernels.Add(all.Slice(1, 16), a, b, 16),
		"outside":          kernels.Fill(kernels.View{Buf: buf, Off: 60, Len: 8}, 8, 1),
		"wrong dtype":      kernels.EmbedForward(out, a, b, kernels.View{}, 4, 4, 1, 16),
		"unknown flag":     {Op: kernels.OpAdd, Flags: kernels.TransA, Args: [8]kernels.View{out, a, b}, Dims: kernels.Dims{16}},
	} {
		if err := dev.Supports(call); !errors.Is(err, kernels.ErrBadCall) {
			t.Errorf("%s: Supports says %v, want ErrBadCall", name, err)
		}
		if err := stickyError(dev, call, kernels.Fill(out, 16, 3)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	q := newQueue(t, dev)
	got := make([]float32, 1)
	q.Read(kernels.Float32Bytes(got), out.Slice(0, 1))
	if err := q.Sync(); err != nil || got[0] != 0 {
		t.Errorf("a call after a bad one ran: element is %v, error %v", got[0], err)
	}
}

func stickyError(dev kernels.Device, bad, good kernels.Call) error {
	q, err := dev.NewQueue()
	if err != nil {
		return err
	}
	q.Do(bad)
	q.Do(good)
	for range 2 {
		if err := q.Sync(); !errors.Is(err, kernels.ErrBadCall) {
			return fmt.Errorf("a Sync gives %v, want ErrBadCall", err)
		}
	}
	_ = q.Close() // gives the same error again
	return nil
}
