package opencl

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math"
	"strings"
	"testing"

	"pnode/kernels"
	"pnode/kernels/conform"
	"pnode/kernels/gpu"
	"pnode/kernels/native"
)

// unitDevice is the first device, a processor, with what stands in for a matrix unit.
func unitDevice(t *testing.T, u gpu.Unit) Info {
	t.Helper()
	info := firstDevice(t)
	if !info.CPU {
		t.Skip("what stands in for matrix units is for processors")
	}
	info.Unit = u
	return info
}

func try(t *testing.T, info Info, source string) *driver {
	t.Helper()
	d, err := info.drive(func(gpu.Geometry) string { return source }, gpu.WithUnit(info.Unit))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// place is where a number of a work-item is in a matrix.
type place struct{ row, column int }

// layout says where the numbers of a lane are: of a and b the halves in their order in memory,
// of c the floats. It is what the makers' documents say, and the kernels must agree with.
type layout struct {
	a, b, c         func(lane, n int) place
	ofA, ofB, parts int
}

// layouts has the layouts of AMD's "RDNA3 Instruction Set Architecture" (WMMA; halves of a wave have a
// and b twice), "RDNA4 Instruction Set Architecture" and "CDNA3 Instruction Set Architecture"
// (v_mfma_f32_16x16x16_bf16 and _f16), and of the extension cl_intel_subgroup_matrix_multiply_accumulate.
var layouts = map[gpu.Unit]layout{
	gpu.WMMA11: {
		ofA: 16, a: func(lane, n int) place { return place{lane % 16, n} },
		ofB: 16, b: func(lane, n int) place { return place{n, lane % 16} },
		parts: 8, c: func(lane, n int) place { return place{2*n + lane/16, lane % 16} },
	},
	gpu.WMMA12: {
		ofA: 8, a: func(lane, n int) place { return place{lane % 16, lane/16*8 + n} },
		ofB: 8, b: func(lane, n int) place { return place{lane/16*8 + n, lane % 16} },
		parts: 8, c: func(lane, n int) place { return place{lane/16*8 + n, lane % 16} },
	},
	gpu.MFMA: {
		ofA: 4, a: func(lane, n int) place { return place{lane % 16, lane/16*4 + n} },
		ofB: 4, b: func(lane, n int) place { return place{lane/16*4 + n, lane % 16} },
		parts: 4, c: func(lane, n int) place { return place{lane/16*4 + n, lane % 16} },
	},
	gpu.DPAS8: {
		ofA: 16, a: func(lane, n int) place { return place{n / 2, 2*lane + n%2} },
		ofB: 16, b: func(lane, n int) place { return place{n, lane} },
		parts: 8, c: func(lane, n int) place { return place{n, lane} },
	},
	gpu.DPAS16: {
		ofA: 8, a: func(lane, n int) place { return place{n, lane} },
		ofB: 16, b: func(lane, n int) place { return place{n, lane} },
		parts: 8, c: func(lane, n int) place { return place{n, lane} },
	},
}

// number is a small whole number for each place of each matrix of each warp.
func number(matrix, warp int, p place) float32 {
	x := uint32(matrix+3*warp)*2654435761 + uint32(p.row*16+p.column)*40503
	return float32(int(x>>13)%17 - 8)
}

const (
	matrixA, matrixB, matrixC = 0, 1, 2
	partsIn, partsOut         = 24, 8 // words of an item
)

// in are the words of an item of a warp.
func (l layout) in(dtype kernels.DType, warp, lane int) (words [partsIn]uint32) {
	half := func(matrix int, p place) uint32 { return uint32(conform.HalfBits(dtype, number(matrix, warp, p))) }
	for n := range l.ofA {
		words[n/2] |= half(matrixA, l.a(lane, n)) << (16 * (n % 2))
	}
	for n := range l.ofB {
		words[8+n/2] |= half(matrixB, l.b(lane, n)) << (16 * (n % 2))
	}
	for n := range l.parts {
		words[16+n] = math.Float32bits(number(matrixC, warp, l.c(lane, n)))
	}
	return words
}

// out returns the number that an item must get as part n of c.
func (l layout) out(warp, lane, n int) float32 {
	p := l.c(lane, n)
	sum := number(matrixC, warp, p)
	for k := range 16 {
		sum += number(matrixA, warp, place{p.row, k}) * number(matrixB, warp, place{k, p.column})
	}
	return sum
}

// allOnUnits makes the tests of units take minutes.
var allOnUnits = flag.Bool("units", false, "run the whole suite for products on each kind of matrix units")

// TestUnits: what stands in for each kind of matrix units spreads matrices as they do, passes the
// probe, and multiplies.
func TestUnits(t *testing.T) {
	for _, u := range gpu.Units {
		t.Run(u.String(), func(t *testing.T) {
			d := try(t, unitDevice(t, u), gpu.UnitSource(gpu.WithUnit(u)))
			dev := &Device{Device: gpu.NewDevice(d, d.program.geometry), Info: d.Info, driver: d}
			for _, half := range gpu.UnitHalves {
				testParts(t, d, half)
				if err := d.probe(half); err != nil {
					t.Error(err)
				}
				if form, ok := forms[u]; ok {
					testProducts(t, dev, form, half == kernels.F16)
				}
				if *allOnUnits {
					conform.RunOpHalves(t, dev, kernels.OpMatMul, half)
				}
			}
		})
	}
}

// forms has the forms of products that are always made, in which each factor is stored each way.
var forms = map[gpu.Unit]kernels.Flags{
	gpu.WMMA12: 0, gpu.WMMA11: kernels.TransB, gpu.DPAS8: kernels.TransA, gpu.DPAS16: kernels.TransA | kernels.TransB,
}

// testProducts are products of one form: with edges, of several tiles, aligned or not.
func testProducts(t *testing.T, dev *Device, form kernels.Flags, f16 bool) {
	q := newQueue(t, dev)
	for _, c := range []conform.Case{
		{Call: kernels.Call{Op: kernels.OpMatMul, Dims: kernels.Dims{37, 141, 70}, Flags: form | kernels.Accumulate}, Seed: 1, Halved: []int{1, 2}},
		{Call: kernels.Call{Op: kernels.OpMatMul, Dims: kernels.Dims{136, 40, 72}, Flags: form}, Seed: 2, Halved: []int{0, 1, 2}, Without: []int{3}, Aligned: true},
	} {
		c.F16 = f16
		if err := conform.Check(dev, q, c); err != nil {
			t.Error(err)
		}
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
}

// testParts gives every item its parts of matrices and wants its part of the result.
func testParts(t *testing.T, d *driver, half kernels.DType) {
	l, lanes, items := layouts[d.Unit], d.Unit.Shape().Lanes, d.program.geometry.Group()
	var in []byte
	for item := range items {
		for _, word := range l.in(half, item/lanes, item%lanes) {
			in = binary.LittleEndian.AppendUint32(in, word)
		}
	}
	out := make([]float32, items*partsOut)
	if err := d.run(fmt.Sprintf("unit_parts_%v", half), kernels.Float32Bytes(out), in); err != nil {
		t.Fatal(err)
	}
	for item := range items {
		for n := range l.parts {
			if got, want := out[item*partsOut+n], l.out(item/lanes, item%lanes, n); got != want {
				t.Fatalf("item %d has %v as part %d, want %v", item, got, n, want)
			}
		}
	}
}

// TestProbeRefusesWrongUnits breaks what loads the parts: the kernels compile and compute wrong.
func TestProbeRefusesWrongUnits(t *testing.T) {
	const right, wrong = "#define FIRST_DEPTH 0", "#define FIRST_DEPTH (LANE / 16)" // halves of a warp that differ
	source := gpu.UnitSource(gpu.WithUnit(gpu.WMMA11))
	if !strings.Contains(source, right) {
		t.Fatalf("the source has no %q", right)
	}
	d := try(t, unitDevice(t, gpu.WMMA11), strings.Replace(source, right, wrong, 1))
	for _, half := range gpu.UnitHalves {
		if err := d.probe(half); !errors.Is(err, errNoUnit) {
			t.Errorf("units that compute wrong in %v: %v", half, err)
		}
	}
}

// TestProbeRefusesCoarseUnits: units that take what is not normal in f16 for 0, as CDNA2's do, are left to
// bf16.
func TestProbeRefusesCoarseUnits(t *testing.T) {
	const right, wrong = "return type == F16 ? vload_half(0", "return type == F16 && (x & 0x7c00) == 0 ? 0.0f : type == F16 ? vload_half(0"
	source := gpu.UnitSource(gpu.WithUnit(gpu.MFMA))
	if strings.Count(source, right) != 1 {
		t.Fatalf("the source has no %q", right)
	}
	var lacks gpu.Lacks
	d := try(t, unitDevice(t, gpu.MFMA), strings.Replace(source, right, wrong, 1))
	d.probeHalves(&lacks)
	if lacks.FastBF16 != nil || !errors.Is(lacks.FastF16, errNoUnit) {
		t.Errorf("units without small numbers in f16 lack %+v", lacks)
	}
}

// rejecting makes the driver's compiler refuse the first programs.
func rejecting(info Info, programs int) Info {
	whole, broken, builds, failed := info.lib, *info.lib, 0, buildProgramFailure
	broken[buildProgram] = native.Callback(func(a, b, c, d, e, f uintptr) uintptr {
		if builds++; builds <= programs {
			return uintptr(uint32(failed))
		}
		return native.Call(whole[buildProgram], a, b, c, d, e, f)
	})
	info.lib = &broken
	return info
}

// TestOpenWithoutUnits: a device whose compiler refuses them works without, and says so.
func TestOpenWithoutUnits(t *testing.T) {
	dev := open(t, rejecting(unitDevice(t, gpu.WMMA12), 2))
	const want = "vector units (AMD's WMMA of RDNA4: opencl: clBuildProgram: CL_BUILD_PROGRAM_FAILURE (-11))"
	if dev.Geometry().Unit != gpu.NoUnit || dev.Products() != want {
		t.Errorf("products are made by %v, %q, want %q", dev.Geometry().Unit, dev.Products(), want)
	}
}

// TestCompilerWithoutF16: one that takes no units in f16 may take them in bf16.
func TestCompilerWithoutF16(t *testing.T) {
	lacks := rejecting(unitDevice(t, gpu.DPAS8), 1).tryUnit()
	const want = "Intel's DPAS, 8 wide; vector units in f16 (opencl: clBuildProgram: CL_BUILD_PROGRAM_FAILURE (-11))"
	if got := lacks.Products(gpu.DPAS8.String(), "vector units", gpu.UnitHalves[:]...); lacks.FastBF16 != nil || got != want {
		t.Errorf("products are made by %q, want %q", got, want)
	}
}

// TestOpenWithUnits: units are used when they pass.
func TestOpenWithUnits(t *testing.T) {
	if !*allOnUnits {
		t.Skip("compiles every kernel once more: -units")
	}
	dev := open(t, unitDevice(t, gpu.WMMA12))
	if dev.Geometry().Unit != gpu.WMMA12 || dev.Products() != "AMD's WMMA of RDNA4" {
		t.Errorf("products are made by %v, %q", dev.Geometry().Unit, dev.Products())
	}
}

// TestWhichUnit: devices by what drivers say of them.
func TestWhichUnit(t *testing.T) {
	const amd, intel = "Advanced Micro Devices, Inc.", "Intel(R) Corporation"
	matrix := []string{"cl_khr_fp16", matrixExtension}
	for _, c := range []struct {
		info Info
		want gpu.Unit
	}{
		{Info{Vendor: amd, Name: "gfx1100"}, gpu.WMMA11},
		{Info{Vendor: amd, Name: "gfx1201"}, gpu.WMMA12},
		{Info{Vendor: amd, Name: "gfx90a:sramecc+:xnack-"}, gpu.MFMA},
		{Info{Vendor: amd, Name: "gfx1030"}, gpu.NoUnit},
		{Info{Vendor: "AMD", Name: "AMD Radeon RX 7900 XTX (radeonsi, navi31)"}, gpu.NoUnit},
		{Info{Vendor: intel, Extensions: matrix, Subgroups: []int{32, 16, 8}}, gpu.DPAS8},
		{Info{Vendor: intel, Extensions: matrix, Subgroups: []int{16, 32}}, gpu.DPAS16},
		{Info{Vendor: intel, Extensions: matrix}, gpu.NoUnit},
		{Info{Vendor: intel, Subgroups: []int{8}}, gpu.NoUnit},
	} {
		c.info.GroupItems = 256
		if got := c.info.unit(); got != c.want {
			t.Errorf("%s %s, sub-groups of %v: %v, want %v", c.info.Vendor, c.info.Name, c.info.Subgroups, got, c.want)
		}
		c.info.GroupItems = 128
		if got := c.info.unit(); got != gpu.NoUnit {
			t.Errorf("%s in groups of 128 items: %v", c.info.Name, got)
		}
	}
}
