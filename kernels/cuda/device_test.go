package cuda

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"pnode/kernels"
	"pnode/kernels/conform"
	"pnode/kernels/gpu"
)

// fakeCards are the cards of the active fake.
func fakeCards(t *testing.T) []Info {
	t.Helper()
	list, err := fakeLibrary().list()
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// openFake opens a card of the active fake without the test of its kernels.
func openFake(t *testing.T, index int) *Device {
	t.Helper()
	list := fakeCards(t)
	dev, err := list[index].open()
	return closing(t, dev, err)
}

// closing closes a card that was opened when the test is over.
func closing(t testing.TB, dev *Device, err error) *Device {
	t.Helper()
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

func newBuffer(t testing.TB, dev kernels.Device, dtype kernels.DType, count int) kernels.View {
	t.Helper()
	buf, err := dev.Alloc(dtype, count)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(buf.Free)
	return kernels.Whole(buf)
}

func newQueue(t testing.TB, dev kernels.Device) kernels.Queue {
	t.Helper()
	q, err := dev.NewQueue()
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// matrixOps are the operations that have kernels on matrix units, with how these are named.
var matrixOps = map[kernels.Op]string{
	kernels.OpMatMul: "matmul_mma", kernels.OpAttentionForward: "attention_mma_forward", kernels.OpAttentionForwardPart: "attention_mma_forward",
	kernels.OpAttentionBackward: "attention_mma_backward", kernels.OpAttentionBackwardPart: "attention_mma_backward",
}

// TestConform runs the suite through the driver's interface with the kernels of the same source
// on an OpenCL device. An old card gets every form once: package opencl runs these kernels in every form
// and shape. Cards with matrix units have the same kernels but for products and attention. What stands in
// for the first ones' units multiplies f16 as it does for later ones, so every shape is for these.
func TestConform(t *testing.T) {
	for _, compute := range []Capability{61, 75, 90} {
		t.Run(compute.String(), func(t *testing.T) {
			b := Info{Compute: compute}.build()
			f := newFake(t, openclMachine(t, b.geometry), 1)
			f.compute = compute
			list := fakeCards(t)
			dev, err := list[0].Open()
			if err != nil {
				t.Fatal(err)
			}
			if b.geometry.Matrix == gpu.NoMatrix {
				conform.RunForms(t, dev)
			}
			for _, half := range []kernels.DType{kernels.BF16, kernels.F16} {
				run := conform.RunOpHalfForms
				if b.geometry.Matrix == gpu.Ampere {
					if testing.Short() && half == kernels.F16 {
						continue // Turing's
					}
					if !testing.Short() {
						conform.RunLargeScores(t, dev, half, 0.01)
					}
					run = conform.RunOpHalves
				}
				for op, name := range matrixOps {
					if b.geometry.Multiplies(half) {
						if testing.Short() && strings.HasSuffix(op.String(), "part") {
							continue // the kernels of the whole
						}
						f.launches = nil
						t.Run(fmt.Sprintf("%v %v", op, half), func(t *testing.T) { run(t, dev, op, half) })
					}
					name := fmt.Sprintf("%s_%v", name, half)
					onMatrixUnits := slices.ContainsFunc(f.launches, func(l gpu.Launch) bool { return strings.HasPrefix(unnumbered(l.Kernel), name) })
					if onMatrixUnits != b.geometry.Multiplies(half) {
						t.Errorf("%v of %v: matrix units used: %v", op, half, onMatrixUnits)
					}
				}
			}
			if err := dev.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// unnumbered is the name of a kernel without which of both gradients of an attention it computes.
func unnumbered(kernel string) string {
	return strings.NewReplacer("_queries", "", "_keys", "").Replace(kernel)
}

// sizes are dimensions by their letters, for a call of any operation.
var sizes = map[rune]int{'B': 2, 'T': 6, 'H': 4, 'K': 2, 'D': 8, 'C': 12, 'V': 11, 'N': 70, 'M': 7, 'F': 9, 'W': 40, 'n': 50, 'p': 1, 'q': 3}

// TestLaunches makes a call of every operation: the fake refuses parameters that are not those
// which the PTX declares, and buffers that are none.
func TestLaunches(t *testing.T) {
	f := newFake(t, &plain{}, 1)
	dev := openFake(t, 0)
	q := newQueue(t, dev)
	for _, op := range kernels.Ops() {
		c := conform.Case{Call: kernels.Call{Op: op, Scalars: [8]float32{0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5}}, Seed: 1}
		for k, letter := range kernels.Info(op).Dims {
			c.Call.Dims[k] = sizes[letter]
		}
		before := len(f.launches)
		err := conform.Check(dev, q, c) // no kernel runs: results are wrong
		if kernels.Info(op).Optional && errors.Is(err, kernels.ErrUnsupported) {
			continue
		}
		if sticky := q.Sync(); sticky != nil {
			t.Fatalf("%v: %v, %v", op, sticky, err)
		}
		if len(f.launches) == before {
			t.Errorf("%v %v launches nothing: %v", op, c.Call.Dims, err)
		}
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
}

// TestParameters wants the numbers of a call in their places.
func TestParameters(t *testing.T) {
	f := newFake(t, &plain{}, 1)
	dev := openFake(t, 0)
	x, q := newBuffer(t, dev, kernels.F32, 4096), newQueue(t, dev)
	q.Do(kernels.Fill(x.Slice(10, 4000), 4000, 1.5))
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	got := f.launches[0]
	want := []gpu.Param{{Bits: got.Params[0].Bits, Bytes: 8}, {Bits: 10, Bytes: 8}, {Bits: 4000, Bytes: 8}, {Bits: 0x3fc00000, Bytes: 4}}
	if got.Kernel != "fill" || got.Groups != [3]int{16, 1, 1} || got.Items != [2]int{256, 1} || !slices.Equal(got.Params, want) {
		t.Errorf("launch %+v, want parameters %v", got, want)
	}
}

// TestTransfers copies more than staging holds, both ways, in two queues of two cards, while
// goroutines change threads.
func TestTransfers(t *testing.T) {
	newFake(t, &plain{}, 2)
	const floats = (stagingBytes + 3*pieceBytes/2) / 4
	var group sync.WaitGroup
	for card := range 2 {
		dev := openFake(t, card)
		for seed := range 2 {
			v, q := newBuffer(t, dev, kernels.F32, floats+2), newQueue(t, dev)
			group.Go(func() {
				want := make([]byte, 4*floats)
				for i := range want {
					want[i] = byte(i*7 + i>>12 + seed + 2*card)
				}
				got, edge := make([]byte, len(want)), make([]byte, 4)
				sent := bytes.Clone(want)
				q.Write(v.Slice(1, floats), sent)
				q.Read(got, v.Slice(1, floats))
				q.Read(edge, v.Slice(floats+1, 1))
				if err := q.Close(); err != nil {
					t.Error(err)
				}
				if !bytes.Equal(got, want) || !bytes.Equal(edge, make([]byte, 4)) {
					t.Errorf("card %d, queue %d: other bytes came back", card, seed)
				}
			})
		}
	}
	group.Wait()
}

func TestList(t *testing.T) {
	f := newFake(t, &plain{}, 2)
	list, err := fakeLibrary().list()
	if err != nil || len(list) != 2 {
		t.Fatalf("%d cards, %v", len(list), err)
	}
	i := list[1]
	if i.Name != "Imaginary 1" || i.PCI != "0000:a1:00.0" || i.Driver != "12.4" || i.Compute != 80 || i.MemoryBytes != 1<<30 || i.Unusable != "" {
		t.Errorf("card 1: %+v", i)
	}
	f.compute = 52
	list, err = fakeLibrary().list()
	if err != nil || !strings.Contains(list[0].Unusable, "5.2") {
		t.Errorf("an old card: %q, %v", list[0].Unusable, err)
	}
	if _, err := list[0].Open(); err == nil || !strings.Contains(err.Error(), "the kernels need 6.0") {
		t.Errorf("an old card opens: %v", err)
	}
	f.cards = 0
	if list, err := fakeLibrary().list(); err != nil || len(list) != 0 {
		t.Errorf("no card: %v, %v", list, err)
	}
}

func TestNoDriver(t *testing.T) {
	_, err := open([]string{"libnowhere.so.1"})
	if !errors.Is(err, ErrNoLibrary) {
		t.Errorf("%v, want ErrNoLibrary", err)
	}
}

// TestWrongKernels: a card whose results are wrong is not opened.
func TestWrongKernels(t *testing.T) {
	newFake(t, &plain{}, 1)
	list := fakeCards(t)
	if _, err := list[0].Open(); err == nil || !strings.Contains(err.Error(), "cuda:0: Imaginary 0: conform: matmul") {
		t.Errorf("a card that computes nothing: %v", err)
	}
}

// forgetful leaves out kernels with some word in their names.
type forgetful struct {
	gpu.Driver
	word string
}

func (f forgetful) NewStream() (gpu.Stream, error) {
	s, err := f.Driver.NewStream()
	return forgetfulStream{s, f.word}, err
}

type forgetfulStream struct {
	gpu.Stream
	word string
}

func (s forgetfulStream) Execute(list []gpu.Launch) error {
	return s.Stream.Execute(slices.DeleteFunc(slices.Clone(list), func(l gpu.Launch) bool { return strings.Contains(l.Kernel, s.word) }))
}

// TestWithoutF16: a card that is wrong in f16 alone is of use without.
func TestWithoutF16(t *testing.T) {
	f := newFake(t, forgetful{openclMachine(t, gpu.TuringUnits), "_f16_"}, 1)
	f.compute = 75
	opened, err := fakeCards(t)[0].Open()
	dev := closing(t, opened, err)
	if want := "; no f16 (conform: matmul"; !strings.Contains(dev.Products(), want) {
		t.Errorf("products: %q, want %q", dev.Products(), want)
	}
	for half, refused := range map[kernels.DType]bool{kernels.F32: false, kernels.BF16: false, kernels.F16: true} {
		a, out := newBuffer(t, dev, half, 64*64), newBuffer(t, dev, kernels.F32, 64*64)
		err := dev.Supports(kernels.MatMul(out, a, a, kernels.View{}, 64, 64, 64, 0))
		if errors.Is(err, kernels.ErrUnsupported) != refused {
			t.Errorf("%v: %v", half, err)
		}
	}
}

func TestLimit(t *testing.T) {
	newFake(t, &plain{}, 1)
	dev := openFake(t, 0)
	dev.LimitMemory(1000)
	x := newBuffer(t, dev, kernels.F32, 200)
	if _, err := dev.Alloc(kernels.F32, 51); !errors.Is(err, kernels.ErrOutOfMemory) || !strings.Contains(err.Error(), "800 of 1000 that may be used") {
		t.Errorf("1004 of 1000 bytes: %v", err)
	}
	x.Buf.Free()
	newBuffer(t, dev, kernels.F32, 250)
	if _, err := dev.NewQueue(); !errors.Is(err, kernels.ErrOutOfMemory) {
		t.Errorf("a queue without room: %v", err)
	}
	if free, err := dev.FreeBytes(); free != 1<<29 || err != nil {
		t.Errorf("%d bytes are free, %v", free, err)
	}
}
