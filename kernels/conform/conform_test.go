package conform_test

import (
	"math"
	"testing"

	"pnode/kernels"
	"pnode/kernels/conform"
	"pnode/kernels/cpu"
	"pnode/kernels/null"
)

// saboteur is a device whose queues do something wrong after each call.
type saboteur struct {
	kernels.Device
	harm func(q kernels.Queue, c kernels.Call)
}

type saboteurQueue struct {
	kernels.Queue
	harm func(q kernels.Queue, c kernels.Call)
}

func (s saboteur) NewQueue() (kernels.Queue, error) {
	q, err := s.Device.NewQueue()
	return saboteurQueue{q, s.harm}, err
}

func (q saboteurQueue) Do(c kernels.Call) {
	q.Queue.Do(c)
	q.harm(q.Queue, c)
}

// change adds to one element of a view, or makes it NaN.
func change(q kernels.Queue, v kernels.View, by float32) {
	x := make([]float32, 1)
	q.Read(kernels.Float32Bytes(x), v)
	x[0] += by
	q.Write(v, kernels.Float32Bytes(x))
}

// newProcessor is a device to spoil.
func newProcessor(t *testing.T) kernels.Device {
	t.Helper()
	dev, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	return dev
}

// TestFindsFaults checks the checker: what a backend can do wrong is noticed.
func TestFindsFaults(t *testing.T) {
	dev := newProcessor(t)
	inf := float32(math.Inf(1))
	faults := map[string]func(q kernels.Queue, c kernels.Call){
		"small error": func(q kernels.Queue, c kernels.Call) { change(q, c.Args[0].Slice(5, 1), 0.01) },
		"NaN":         func(q kernels.Queue, c kernels.Call) { change(q, c.Args[0].Slice(c.Args[0].Len-1, 1), inf-inf) },
		"guard before": func(q kernels.Queue, c kernels.Call) {
			zero(q, kernels.View{Buf: c.Args[0].Buf, Off: c.Args[0].Off - 1, Len: 1})
		},
		"guard after": func(q kernels.Queue, c kernels.Call) {
			zero(q, kernels.View{Buf: c.Args[1].Buf, Off: c.Args[1].Off + c.Args[1].Len, Len: 1})
		},
		"changed input": func(q kernels.Queue, c kernels.Call) { change(q, c.Args[1].Slice(3, 1), 1) },
	}
	c := conform.Case{Call: kernels.Call{Op: kernels.OpMatMul, Dims: kernels.Dims{5, 6, 7}}, Seed: 9}
	for name, harm := range faults {
		bad := saboteur{Device: dev, harm: harm}
		q, err := bad.NewQueue()
		if err != nil {
			t.Fatal(err)
		}
		if err := conform.Check(bad, q, c); err == nil {
			t.Errorf("%s is not noticed", name)
		}
		if err := conform.SelfTest(bad); err == nil {
			t.Errorf("%s passes the self test", name)
		}
	}
}

func zero(q kernels.Queue, v kernels.View) { q.Write(v, make([]byte, 4)) }

// TestFindsFaultsInF16 apart from others.
func TestFindsFaultsInF16(t *testing.T) {
	dev := newProcessor(t)
	bad := saboteur{Device: dev, harm: func(q kernels.Queue, c kernels.Call) {
		if c.Op == kernels.OpMatMul && c.Args[1].Buf.DType() == kernels.F16 {
			change(q, c.Args[0].Slice(5, 1), 0.1)
		}
	}}
	if err := conform.SelfTest(bad); err != nil {
		t.Error(err)
	}
	if err := conform.SelfTestF16(bad); err == nil {
		t.Error("a wrong product in f16 passes")
	}
	if err := conform.SelfTestF16(dev); err != nil {
		t.Error(err)
	}
}

// TestNullFails: a device that computes nothing is no backend.
func TestNullFails(t *testing.T) {
	if err := conform.SelfTest(null.New()); err == nil {
		t.Error("the null device passes")
	}
}

// TestFindsRandomResults: a device whose results depend on more than the operands is noticed.
func TestFindsRandomResults(t *testing.T) {
	dev := newProcessor(t)
	calls := float32(0)
	moody := saboteur{Device: dev, harm: func(q kernels.Queue, c kernels.Call) {
		calls++
		change(q, c.Args[0].Slice(5, 1), calls*1e-3)
	}}
	c := conform.Case{Call: kernels.Call{Op: kernels.OpAdd, Dims: kernels.Dims{9}}, Seed: 9}
	for _, trial := range []struct {
		kernels.Device
		want bool
	}{{dev, true}, {moody, false}} {
		q, err := trial.NewQueue()
		if err != nil {
			t.Fatal(err)
		}
		if err := conform.CheckRepeats(trial.Device, q, c); (err == nil) != trial.want {
			t.Errorf("%T: %v", trial.Device, err)
		}
	}
}

// TestEqualScores: the processor divides probabilities among equal scores of any size, whatever instructions
// it uses.
func TestEqualScores(t *testing.T) {
	for _, name := range []string{"generic", "avx2", "avx512", "avx512bf16", "neon", "neonbf16"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(cpu.VariantEnv, name)
			dev, err := cpu.New(cpu.Options{Threads: 2})
			if err != nil {
				t.Skip(err)
			}
			conform.RunEqualScores(t, dev)
			if err := dev.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
