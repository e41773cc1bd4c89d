package cuda

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"pnode/kernels"
	"pnode/kernels/gpu"
)

// How the instructions of matrix units spread matrices over the 32 lanes of a warp, as "Parallel
// Thread Execution ISA" says it: sections "Matrix fragments for mma.m16n8k16 with floating point
// type" and "ldmatrix". Element i of a fragment is the half i%2 of register i/2.

type place struct{ row, column int }

func placeA(lane, i int) place {
	group, thread := lane/4, lane%4
	p := place{group, thread*2 + i&1}
	if !(i < 2 || 4 <= i && i < 6) {
		p.row += 8
	}
	if i >= 4 {
		p.column += 8
	}
	return p
}

func placeB(lane, i int) place {
	p := place{lane%4*2 + i&1, lane / 4}
	if i >= 2 {
		p.row += 8
	}
	return p
}

func placeC(lane, i int) place {
	p := place{lane / 4, lane%4*2 + i&1}
	if i >= 2 {
		p.row += 8
	}
	return p
}

// The words that an item gives the kernel matrix_parts and gets from it.
const (
	partsIn, partsOut = 11, 14
	tileSide          = 64
)

// warp are the matrices of one warp, of small whole numbers, and where each lane's row of the
// tile starts.
type warp struct {
	a      [16][16]float32
	b      [16][8]float32
	c      [16][8]float32
	starts [32]int
}

// newWarp makes those of warp n.
func newWarp(n int) (w warp) {
	next := uint32(n)
	number := func() float32 {
		next = next*1664525 + 1013904223
		return float32(int(next>>24)%17 - 8)
	}
	for i := range 16 {
		for j := range 16 {
			w.a[i][j] = number()
		}
		for j := range 8 {
			w.b[i][j], w.c[i][j] = number(), number()
		}
	}
	for lane := range w.starts {
		w.starts[lane] = (lane*29+n*8)%tileSide*tileSide + (lane+n)%8*8
	}
	return w
}

// halfOf are the bits of a half of a small whole number.
func halfOf(half kernels.DType, x float32) uint32 {
	bits := math.Float32bits(x)
	if half == kernels.BF16 || x == 0 {
		return bits >> 16
	}
	return bits>>16&0x8000 | (bits&0x7fffffff-112<<23)>>13
}

// in are the words of a lane.
func (w *warp) in(half kernels.DType, lane int) (words [partsIn]uint32) {
	for i := range 8 {
		p := placeA(lane, i)
		words[i/2] |= halfOf(half, w.a[p.row][p.column]) << (16 * (i % 2))
	}
	for i := range 4 {
		p := placeB(lane, i)
		words[4+i/2] |= halfOf(half, w.b[p.row][p.column]) << (16 * (i % 2))
		p = placeC(lane, i)
		words[6+i] = math.Float32bits(w.c[p.row][p.column])
	}
	words[10] = uint32(w.starts[lane])
	return words
}

// out are the words that a lane must get.
func (w *warp) out(half kernels.DType, lane int) (words [partsOut]uint32) {
	for i := range 4 {
		p := placeC(lane, i)
		sum := w.c[p.row][p.column]
		for k := range 16 {
			sum += w.a[p.row][k] * w.b[k][p.column]
		}
		words[i] = math.Float32bits(sum)
		// Row r of matrix i starts where lane 8*i+r says; along, a lane has two neighbours of a
		// row, across of a column.
		pair := lane % 4 * 2
		along := w.starts[8*i+lane/4] + pair
		words[4+i] = uint32(along) | uint32(along+1)<<16
		words[8+i] = uint32(w.starts[8*i+pair]+lane/4) | uint32(w.starts[8*i+pair+1]+lane/4)<<16
	}
	words[12] = w.in(half, lane^1)[0]
	own := w.in(half, lane)
	words[13] = halfOf(half, math.Float32frombits(own[6])) | halfOf(half, math.Float32frombits(own[7]))<<16
	return words
}

// testMatrixParts runs the kernel for a type on a machine and wants every word.
func testMatrixParts(t *testing.T, machine gpu.Driver, half kernels.DType) {
	items := gpu.MatrixUnits.Group()
	memory := func(words int) gpu.Memory {
		m, err := machine.Alloc(4 * words)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := machine.Free(m); err != nil {
				t.Error(err)
			}
		})
		return m
	}
	var in []byte
	for item := range items {
		w := newWarp(item / 32)
		for _, word := range w.in(half, item%32) {
			in = binary.LittleEndian.AppendUint32(in, word)
		}
	}
	to, from := memory(items*partsOut), memory(items*partsIn)
	got := make([]byte, 4*items*partsOut)
	s, err := machine.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	for _, do := range []func() error{
		func() error { return s.Write(from, 0, in) },
		func() error {
			return s.Execute([]gpu.Launch{{
				Kernel: fmt.Sprintf("matrix_parts_%v", half), Groups: [3]int{1, 1, 1}, Items: [2]int{gpu.MatrixUnits.Side, gpu.MatrixUnits.Side},
				Params: []gpu.Param{{Bits: uint64(to), Bytes: 8}, {Bytes: 8}, {Bits: uint64(from), Bytes: 8}, {Bytes: 8}},
			}})
		},
		func() error { return s.Read(got, to, 0) }, s.Sync, s.Close,
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	for item := range items {
		w := newWarp(item / 32)
		for i, want := range w.out(half, item%32) {
			if word := binary.LittleEndian.Uint32(got[4*(item*partsOut+i):]); word != want {
				t.Errorf("%v: item %d has %#x as word %d, want %#x", half, item, word, i, want)
			}
		}
	}
}

// testAllMatrixParts runs the kernels of a geometry.
func testAllMatrixParts(t *testing.T, machine gpu.Driver, g gpu.Geometry) {
	for _, half := range []kernels.DType{kernels.BF16, kernels.F16} {
		if g.Multiplies(half) {
			testMatrixParts(t, machine, half)
		}
	}
}

// TestMatrixParts: what stands in for matrix units spreads matrices as they do.
func TestMatrixParts(t *testing.T) {
	testAllMatrixParts(t, openclMachine(t, gpu.MatrixUnits), gpu.MatrixUnits)
}

// TestMatrixPartsOnACard is the same for the instructions themselves.
func TestMatrixPartsOnACard(t *testing.T) {
	dev := openCard(t)
	if dev.Geometry().Matrix == gpu.NoMatrix {
		t.Log("the card has no matrix units that there are kernels for")
		return
	}
	testAllMatrixParts(t, dev.driver, dev.Geometry())
}
