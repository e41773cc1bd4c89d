package cpu

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	"pnode/kernels/quant"
)

// TestVariantsVerify names what the start-up check would drop on this machine.
func TestVariantsVerify(t *testing.T) {
	for _, v := range candidates() {
		if err := v.verify(); err != nil {
			t.Errorf("%s: %v", v.name, err)
		}
	}
}

// TestVerifyFindsWrongLoops runs the start-up check on loops that leave out the last
// element, or write one too many.
func TestVerifyFindsWrongLoops(t *testing.T) {
	broken := map[string]func(v *variant){
		"sum": func(v *variant) { v.sum = func(x []float32) float32 { return sumGeneric(x[:len(x)-1]) } },
		"axpy": func(v *variant) {
			v.axpy = func(y, x []float32, s float32) { axpyGeneric(y[:len(y)-1], x, s) }
		},
		"timesRows": func(v *variant) {
			v.timesRows = scaledRowsBy(func(y, x []float32, s float32) {
				timesGeneric(y, x, s)
				y[:len(y)+1][len(y)]++
			})
		},
		"narrow": func(v *variant) {
			v.narrow = func(out []uint16, x []float32) {
				narrowGeneric(out, x)
				out[0] ^= 1
			}
		},
		"softmaxHalves": func(v *variant) { // rounds before it adds up
			v.softmaxHalves = func(out []uint16, x []float32, scale, least float32) (top, sum float32) {
				top, _ = softmaxHalvesGeneric(out, x, scale, least)
				for _, h := range out {
					sum += math.Float32frombits(uint32(h) << 16)
				}
				return top, sum
			}
		},
		"softmaxGradHalves": func(v *variant) {
			v.softmaxGradHalves = func(p, dp []uint16, x, dx []float32, by *[5]float32) {
				softmaxGradHalvesGeneric(p[:len(p)-1], dp, x[:len(x)-1], dx, by)
			}
		},
		"copyB": func(v *variant) {
			v.attention.copyB = func(dst, src []float32, stride, k, panels int) { copyGeneric(dst, src, stride, k, panels-1) }
		},
		"multiply": func(v *variant) {
			v.attention.multiply = func(t *tile) { t.Count--; multiplyGeneric(t) }
		},
		"multiplyPack": func(v *variant) {
			v.product.multiplyPack = func(t *tile) {
				multiplyGeneric(t)
				*t.Packed = *t.A
			}
		},
		"transposeA": func(v *variant) {
			v.transposeA = func(dst, src []float32, stride, k int) { transposeGeneric(dst, src, stride, k-1) }
		},
	}
	for name, spoil := range broken {
		v := generic()
		spoil(v)
		if err := v.verify(); err == nil || !strings.HasPrefix(err.Error(), name+" is wrong") {
			t.Errorf("%s: error is %v", name, err)
		}
	}
}

// TestVerifyFindsWrongDirectKernels, which generic has none of.
func TestVerifyFindsWrongDirectKernels(t *testing.T) {
	whole := func(k int) int { return k }
	for name, c := range map[string]struct {
		wrongRows int
		steps     func(k int) int // of K that are added
		beyond    int             // floats that are written behind the sums
		want      string
	}{
		"right":               {steps: whole},
		"no last step of K":   {steps: func(k int) int { return k - 1 }, want: " is wrong"},
		"no last row":         {steps: whole, wrongRows: 1, want: " is wrong"},
		"writes one too many": {steps: whole, beyond: 1, want: " is wrong"},
	} {
		for _, halves := range []bool{false, true} {
			v := generic()
			kernel := func(rows int) directKernel {
				return directInGo(rows-c.wrongRows, v.product.nr, halves, c.steps, rows*v.product.nr, c.beyond)
			}
			made, field := directKernels{row: kernel(1), few: kernel(directFew), rows: kernel(directRows)}, "direct"
			if v.product.direct = made; halves {
				v.product.direct, v.product.directHalves, field = directKernels{}, made, "directHalves"
			}
			if err := v.verify(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), field+c.want) {
				t.Errorf("%s, halves %v: error is %v", name, halves, err)
			}
		}
	}
}

// TestVerifyFindsWrongInt8Kernels, which generic has none of.
func TestVerifyFindsWrongInt8Kernels(t *testing.T) {
	for name, c := range map[string]struct {
		fewer int // steps of K
		want  string
	}{"right": {}, "no last step of K": {fewer: 1, want: "directInt8 is wrong"}} {
		v := generic()
		kernel := func(rows int) directKernel {
			return func(out, init, a, panel *float32, aStep, skip, k int) {
				wide := make([]float32, k*quant.PanelRows)
				widenInt8Generic(&wide[0], panel, quant.PanelRows, skip, k)
				turned := make([]float32, len(wide))
				for i, w := range wide {
					turned[i%quant.PanelRows*k+i/quant.PanelRows] = w
				}
				directInGo(rows, quant.PanelRows, false, func(k int) int { return k - c.fewer }, 0, 0)(out, init, a, &turned[0], aStep, k, k)
			}
		}
		v.product.directInt8 = directKernels{row: kernel(1), few: kernel(directFew), rows: kernel(directRows)}
		if err := v.verify(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error is %v", name, err)
		}
	}
	v := generic()
	v.widenInt8 = func(out, panel *float32, step, skip, k int) { widenInt8Generic(out, panel, step, 0, k) }
	if err := v.verify(); err == nil || !strings.Contains(err.Error(), "widenInt8 is wrong") {
		t.Errorf("weights from the begin of a block on: error is %v", err)
	}
}

// directInGo is a direct kernel for rows, or one that is wrong in how many steps of K it takes or in what it writes from the float at end on.
func directInGo(rows, nr int, halves bool, steps func(k int) int, end, beyond int) directKernel {
	return func(out, init, a, b *float32, aStep, stride, k int) {
		at := func(p *float32, i int) *float32 { return (*float32)(unsafe.Add(unsafe.Pointer(p), 4*i)) }
		for i := range rows {
			for j := range nr {
				sum := *at(init, j)
				for p := range steps(k) {
					if x := *at(b, j*stride+p); halves {
						bits := math.Float32bits(x)
						sum += *at(a, 2*p*aStep+i) * math.Float32frombits(bits<<16)
						sum += *at(a, (2*p+1)*aStep+i) * math.Float32frombits(bits&^0xffff)
					} else {
						sum += *at(a, p*aStep+i) * x
					}
				}
				*at(out, i*nr+j) = sum
			}
		}
		for i := range beyond {
			*at(out, end+i)++
		}
	}
}

// TestVerifyCallsEverything breaks one function of the best variant after the other.
func TestVerifyCallsEverything(t *testing.T) {
	for name, of := range map[string]func(v *variant) any{
		"variant":            func(v *variant) any { return v },
		"product":            func(v *variant) any { return &v.product },
		"attention":          func(v *variant) any { return &v.attention },
		"pairs":              func(v *variant) any { return &v.pairs },
		"pairs in attention": func(v *variant) any { return &v.attentionPairs },
	} {
		fields := reflect.TypeOf(of(generic())).Elem()
		for i := range fields.NumField() {
			field := fields.Field(i)
			if field.Type.Kind() != reflect.Func || strings.HasPrefix(field.Name, "peak") {
				continue
			}
			v := *candidates()[0].variant
			function := reflect.NewAt(field.Type, unsafe.Add(reflect.ValueOf(of(&v)).UnsafePointer(), field.Offset)).Elem()
			if function.IsNil() {
				continue
			}
			function.Set(reflect.MakeFunc(field.Type, func([]reflect.Value) []reflect.Value { panic(name) }))
			if !panics(func() { _ = v.verify() }) {
				t.Errorf("verify does not call %s of %s", field.Name, name)
			}
		}
	}
}

func panics(do func()) (caught bool) {
	defer func() { caught = recover() != nil }()
	do()
	return false
}
