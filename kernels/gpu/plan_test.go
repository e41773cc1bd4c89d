package gpu

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pnode/kernels"
	"pnode/kernels/null"
)

// views gives views of so many elements each, of a device without memory.
func views(t *testing.T, dtype kernels.DType, counts ...int) (list []kernels.View) {
	t.Helper()
	for _, n := range counts {
		buf, err := null.New().Alloc(dtype, n)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, kernels.Whole(buf))
	}
	return list
}

// TestMatMulTiles: large products have large tiles, products that would leave most of a device
// without work have small ones.
func TestMatMulTiles(t *testing.T) {
	for _, shape := range []struct {
		m, n   int
		kernel string
		groups [3]int
	}{
		{1, 1, "matmul_f32_tn_4", [3]int{1, 1, 1}},
		{65, 130, "matmul_f32_tn_4", [3]int{3, 2, 1}},
		{2000, 1024, "matmul_f32_tn_8", [3]int{8, 16, 1}},
	} {
		v := views(t, kernels.F32, shape.m*shape.n, shape.m*5, shape.n*5)
		c := kernels.MatMul(v[0], v[1], v[2], kernels.View{}, shape.m, shape.n, 5, kernels.TransA)
		if err := c.Check(); err != nil {
			t.Fatal(err)
		}
		p := Plan{Geometry: Geometry{Side: 16}}
		p.Make(c)
		if l := p.Launches[0]; l.Kernel != shape.kernel || l.Groups != shape.groups || l.Items != [2]int{16, 16} {
			t.Errorf("%v: %s in %v groups of %v items", c, l.Kernel, l.Groups, l.Items)
		}
	}
}

// TestMatMulOnUnits: products of halves that matrix units multiply, and no others, are on these, in
// tiles of 128 rows and columns.
func TestMatMulOnUnits(t *testing.T) {
	for _, c := range []struct {
		geometry Geometry
		dtype    kernels.DType
		kernel   string
		items    [2]int
	}{
		{WithUnit(DPAS8), kernels.BF16, "matmul_unit_bf16_nt", [2]int{256, 1}},
		{WithUnit(DPAS8), kernels.F32, "matmul_f32_nt_4", [2]int{16, 16}},
		{WithUnit(DPAS8), kernels.F16, "matmul_unit_f16_nt", [2]int{256, 1}},
		{WithUnit(DPAS8).Without(Lacks{FastF16: errors.New("wrong")}), kernels.F16, "matmul_f16_nt_4", [2]int{16, 16}},
		{MatrixUnits, kernels.BF16, "matmul_mma_bf16_nt", [2]int{16, 16}},
		{MatrixUnits, kernels.F16, "matmul_mma_f16_nt", [2]int{16, 16}},
		{TuringUnits, kernels.BF16, "matmul_bf16_nt_4", [2]int{16, 16}},
		{TuringUnits, kernels.F16, "matmul_mma_f16_nt", [2]int{16, 16}},
		{Sides[0], kernels.F16, "matmul_f16_nt_4", [2]int{16, 16}},
	} {
		f, v := views(t, kernels.F32, 300*100), views(t, c.dtype, 300*5, 100*5)
		p := Plan{Geometry: c.geometry}
		p.Make(kernels.MatMul(f[0], v[0], v[1], kernels.View{}, 300, 100, 5, kernels.TransB))
		if l := p.Launches[0]; l.Kernel != c.kernel || l.Items != c.items || !strings.HasSuffix(c.kernel, "_4") && l.Groups != [3]int{1, 3, 1} {
			t.Errorf("%+v, %v: %s in %v groups of %v items", c.geometry, c.dtype, l.Kernel, l.Groups, l.Items)
		}
	}
}

// TestAttentionKernels: attention in halves is on matrix units where the device has them for these and
// a head fits, in tiles of 128 rows.
func TestAttentionKernels(t *testing.T) {
	for _, c := range []struct {
		geometry Geometry
		dtype    kernels.DType
		d        int
		kernels  [3]string
		tiles    int // of 300 positions
	}{
		{MatrixUnits, kernels.BF16, 64, [3]string{"attention_mma_forward_bf16_64", "attention_mma_backward_queries_bf16_64", "attention_mma_backward_keys_bf16_64"}, 3},
		{MatrixUnits, kernels.BF16, 80, [3]string{"attention_mma_forward_bf16_128", "attention_mma_backward_queries_bf16_128", "attention_mma_backward_keys_bf16_128"}, 3},
		{MatrixUnits, kernels.BF16, 160, [3]string{"attention_forward_256", "attention_backward_queries_256", "attention_backward_keys_256"}, 5},
		{TuringUnits, kernels.F16, 64, [3]string{"attention_mma_forward_f16_64", "attention_mma_backward_queries_f16_64", "attention_mma_backward_keys_f16_64"}, 3},
		{TuringUnits, kernels.F16, 80, [3]string{"attention_forward_128", "attention_backward_queries_128", "attention_backward_keys_128"}, 5},
		{MatrixUnits, kernels.F16, 80, [3]string{"attention_mma_forward_f16_128", "attention_mma_backward_queries_f16_128", "attention_mma_backward_keys_f16_128"}, 3},
		{TuringUnits, kernels.BF16, 64, [3]string{"attention_forward_64", "attention_backward_queries_64", "attention_backward_keys_64"}, 5},
		{MatrixUnits, kernels.F32, 64, [3]string{"attention_forward_64", "attention_backward_queries_64", "attention_backward_keys_64"}, 5},
		{Sides[1], kernels.BF16, 64, [3]string{"attention_forward_64", "attention_backward_queries_64", "attention_backward_keys_64"}, 10},
	} {
		s := kernels.AttentionShape{B: 2, T: 300, H: 4, K: 2, D: c.d}
		rows, channels := s.B*s.T*s.H, s.B*s.T*s.D
		v, f := views(t, c.dtype, channels*4, channels*8, channels*4), views(t, kernels.F32, rows, rows, channels*8)
		p := Plan{Geometry: c.geometry}
		p.Make(kernels.AttentionForward(v[0], f[0], v[1], kernels.View{}, s))
		launches := slices.Clone(p.Launches)
		p.Make(kernels.AttentionBackward(f[2], f[1], v[2], v[1], v[0], f[0], kernels.View{}, s))
		for i, l := range append(launches, p.Launches[1:]...) { // the first is that of delta
			if heads := [...]int{4, 4, 2}[i]; l.Kernel != c.kernels[i] || l.Groups != [3]int{c.tiles, heads, 2} {
				t.Errorf("D=%d in %v: %s in %v groups, want %s in %d tiles", c.d, c.dtype, l.Kernel, l.Groups, c.kernels[i], c.tiles)
			}
		}
	}
}

// TestStages: a sum of columns passes on a row for each part.
func TestStages(t *testing.T) {
	v := views(t, kernels.F32, 300, 300*200)
	p := Plan{Geometry: Geometry{Side: 16}}
	p.Make(kernels.ColumnSum(v[0], v[1], 200, 300, 0))
	if p.ScratchFloats != 4*300 || len(p.Launches) != 2 || p.Launches[0].Groups != [3]int{2, 4, 1} {
		t.Errorf("200 rows of 300: %d floats, %v", p.ScratchFloats, p.Launches)
	}
}

// TestMakeAllocatesNothing: calls are made hundreds of times a step.
func TestMakeAllocatesNothing(t *testing.T) {
	v := views(t, kernels.F32, 64, 64, 64)
	p := Plan{Geometry: Geometry{Side: 8}}
	for _, c := range []kernels.Call{
		kernels.MatMul(v[0], v[1], v[2], kernels.View{}, 8, 8, 8, 0),
		kernels.SumSquares(v[0].Slice(0, 1), v[1], 64),
		kernels.Add(v[0], v[1], v[2], 64),
	} {
		if n := testing.AllocsPerRun(10, func() { p.Make(c) }); n != 0 {
			t.Errorf("%v: %v allocations", c, n)
		}
	}
}

func TestTooLarge(t *testing.T) {
	c := kernels.Call{Op: kernels.OpColumnSum, Dims: kernels.Dims{3, 1 << 31}}
	if err := Supports(c); !errors.Is(err, kernels.ErrUnsupported) || !strings.Contains(err.Error(), "C is more than") {
		t.Errorf("2^31 columns: %v", err)
	}
}

// TestSource: all geometries have every section, and lines are those of their files.
func TestSource(t *testing.T) {
	list := Sides[:]
	for _, u := range Units {
		list = append(list, WithUnit(u))
	}
	for _, g := range list {
		s := Source(g)
		if strings.Contains(s, "#line 1 \"matmulunit.cl\"") != (g.Unit != NoUnit) {
			t.Errorf("%+v: kernels on units", g)
		}
		for _, part := range []string{"#define SIDE", "#line 1 \"base.cl\"", "#define R 8", "#define R 4", "#define CHANNELS 256"} {
			if !strings.Contains(s, part) {
				t.Errorf("%v: the source has no %s", g, part)
			}
		}
	}
}
