package kernels

import (
	"errors"
	"math"
	"testing"
)

type hostBuffer struct {
	dtype DType
	count int
}

func (b *hostBuffer) DType() DType { return b.dtype }
func (b *hostBuffer) Len() int     { return b.count }
func (b *hostBuffer) Free()        {}

func view(dtype DType, n int) View { return Whole(&hostBuffer{dtype, n}) }

// TestTableIsComplete fails when somebody adds an op without its row.
func TestTableIsComplete(t *testing.T) {
	names := map[string]bool{}
	for _, op := range Ops() {
		info := Info(op)
		if info.Name == "" || names[info.Name] {
			t.Errorf("op %d: name %q", op, info.Name)
		}
		names[info.Name] = true
		if info.Class.String() == "invalid" || info.Dims == "" || info.flops == nil || len(info.Operands) == 0 {
			t.Errorf("%v: row is not complete", op)
		}
		if info.Operands[0].Role != Out && info.Operands[0].Role != InOut {
			t.Errorf("%v: outputs come first", op)
		}
	}
}

func TestAttentionCosts(t *testing.T) {
	s := AttentionShape{B: 2, T: 3, H: 4, K: 2, D: 5}
	// 6 causal pairs of positions, 2 products of 2*D operations each, for 2*4 heads.
	c := AttentionForward(View{}, View{}, View{}, View{}, s)
	if got := Info(c.Op).FLOPs(c); got != 6*2*2*5*2*4 {
		t.Errorf("forward: %d FLOPs", got)
	}
	// qkv [2,3,8*5], out [2,3,4*5], lse [2,4,3]
	if got := Info(c.Op).Bytes(c); got != 4*(240+120+24) {
		t.Errorf("forward: %d bytes", got)
	}
}

func TestCheck(t *testing.T) {
	good := MatMul(view(F32, 6), view(F32, 8), view(F32, 12), View{}, 2, 3, 4, 0)
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	huge := good
	huge.Dims = Dims{math.MaxInt, math.MaxInt, math.MaxInt}
	mixed := good
	mixed.Args[1] = view(BF16, 8)
	extra := good
	extra.Args[5] = view(F32, 1)
	same := view(F32, 3)
	heads := AttentionForward(view(F32, 12), view(F32, 3), view(F32, 28), View{}, AttentionShape{B: 1, T: 1, H: 3, K: 2, D: 4})
	for name, c := range map[string]struct {
		call Call
		want error
	}{
		"huge":            {huge, ErrBadCall},
		"bf16":            {Scale(view(BF16, 3), 3, 1), ErrUnsupported},
		"f16":             {Scale(view(F16, 3), 3, 1), ErrUnsupported},
		"mixed types":     {mixed, ErrBadCall},
		"mixed halves":    {MatMul(view(F16, 6), view(BF16, 8), view(BF16, 12), View{}, 2, 3, 4, 0), ErrBadCall},
		"f16 by chance":   {CastRounded(view(F16, 3), view(F32, 3), 3, Rounding{Stochastic: true}), ErrUnsupported},
		"f32 as a half":   {AdamWRounded(view(F32, 3), view(F32, 3), view(F32, 3), view(F32, 3), view(F32, 3), 3, AdamWScalars{}, Rounding{}), ErrBadCall},
		"odd head":        {RoPE(view(F32, 9), view(F32, 9), view(F32, 9), RoPEShape{Rows: 3, T: 3, Heads: 1, D: 3, Width: 3}, 0), ErrBadCall},
		"narrow row":      {RoPE(view(F32, 9), view(F32, 9), view(F32, 9), RoPEShape{Rows: 3, T: 3, Heads: 2, D: 2, Width: 3}, 0), ErrBadCall},
		"full cache":      {AttentionCached(view(F32, 2), view(F32, 4), view(F32, 6), View{}, CachedAttentionShape{AttentionShape{B: 1, T: 1, H: 1, K: 1, D: 2}, 1, 1}), ErrBadCall},
		"certain dropout": {Dropout(view(F32, 2), view(F32, 2), 2, 0, 1, Random{}), ErrBadCall},
		"weight in place": {AddRMSNormForward(view(F32, 3), same, view(F32, 1), view(F32, 3), view(F32, 3), same, 1, 3, 1e-5), ErrBadCall},
		"extra operand":   {extra, ErrBadCall},
		"heads":           {heads, ErrBadCall},
		"long operand":    {Add(view(F32, 3), view(F32, 4), view(F32, 3), 3), ErrBadCall},
		"negative":        {Fill(view(F32, 3), -3, 0), ErrBadCall},
		"bad range":       {Fill(View{Buf: &hostBuffer{F32, 9}, Off: math.MaxInt - 1, Len: 3}, 3, 0), ErrBadCall},
		"op out of table": {Call{Op: opCount}, ErrBadCall},
	} {
		if err := c.call.Check(); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	x := view(F32, 3)
	if err := Add(x, x, view(F32, 3), 3).Check(); err != nil {
		t.Errorf("in place: %v", err)
	}
	long := EmbedForward(view(F32, 6), view(I32, 2), view(F32, 12), view(F32, 30), 1, 2, 3, 4)
	if err := long.Check(); err != nil {
		t.Errorf("more positions than used: %v", err)
	}
}

// TestHalves: calls on halves are right where the table allows them, and move half of the bytes.
func TestHalves(t *testing.T) {
	for _, half := range []DType{BF16, F16} {
		product := MatMul(view(F32, 6), view(half, 8), view(half, 12), View{}, 2, 3, 4, 0)
		if err := product.Check(); err != nil {
			t.Errorf("%v product: %v", half, err)
		}
		if got, want := Info(OpMatMul).Bytes(product), int64(4*6+2*8+2*12); got != want {
			t.Errorf("%v product moves %d bytes, want %d", half, got, want)
		}
		s := AttentionShape{B: 1, T: 3, H: 2, K: 1, D: 2}
		attention := AttentionBackward(view(F32, 24), view(F32, 6), view(half, 12), view(half, 24), view(half, 12), view(F32, 6), View{}, s)
		if err := attention.Check(); err != nil {
			t.Errorf("%v attention: %v", half, err)
		}
		if got, want := Info(attention.Op).Bytes(attention), int64(4*24+4*6+2*(12+24+12)+4*6); got != want {
			t.Errorf("%v attention moves %d bytes, want %d", half, got, want)
		}
		attention.Args[4] = view(F32, 12)
		if err := attention.Check(); !errors.Is(err, ErrBadCall) {
			t.Errorf("%v attention with out in f32: %v", half, err)
		}
		x := view(F32, 3)
		if err := AdamWRounded(x, view(F32, 3), view(F32, 3), view(half, 3), view(F32, 3), 3, AdamWScalars{}, Rounding{}).Check(); err != nil {
			t.Errorf("%v copy of parameters: %v", half, err)
		}
	}
}

// TestTolerances: what is stored as a half is rounded to it, and so may factors be where a half is
// read.
func TestTolerances(t *testing.T) {
	view := func(d DType) View { return View{Buf: &hostBuffer{dtype: d}} }
	for half, digit := range map[DType]float64{BF16: 1.0 / 256, F16: 1.0 / 2048} {
		forward := Call{Op: OpAttentionForward, Args: [8]View{view(half), view(F32), view(half)}}
		backward := Call{Op: OpAttentionBackward, Args: [8]View{view(F32), view(F32), view(half)}}
		fine := Call{Op: OpAttentionBackward, Args: [8]View{view(F32), view(F32), view(F32)}}
		for _, c := range []struct {
			call    Call
			operand int
			want    float64
		}{{forward, 0, 2 * digit}, {forward, 1, 1e-5}, {backward, 0, 4 * digit}, {fine, 0, 2e-5}} {
			if got := Info(c.call.Op).Tolerance(c.call, c.operand); got != c.want {
				t.Errorf("%v of %v, operand %d: tolerance %v, want %v", c.call.Op, half, c.operand, got, c.want)
			}
		}
	}
}

func TestHostBytes(t *testing.T) {
	b := Float32Bytes([]float32{1, -2})
	if want := [8]byte{0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0}; [8]byte(b) != want {
		t.Errorf("bytes are %x, want %x", b, want)
	}
	if Int32Bytes([]int32{258})[1] != 1 || len(Float32Bytes(nil)) != 0 {
		t.Error("integers are not little endian")
	}
}
