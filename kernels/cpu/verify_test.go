package cpu

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"unsafe"
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

// TestVerifyCallsEverything breaks one function of the best variant after the other.
func TestVerifyCallsEverything(t *testing.T) {
	for name, of := range map[string]func(v *variant) any{
		"variant":   func(v *variant) any { return v },
		"product":   func(v *variant) any { return &v.product },
		"attention": func(v *variant) any { return &v.attention },
		"pairs":     func(v *variant) any { return &v.pairs },
	} {
		fields := reflect.TypeOf(of(generic())).Elem()
		for i := range fields.NumField() {
			field := fields.Field(i)
			if field.Type.Kind() != reflect.Func || field.Name == "peak" {
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
