package cuda

import (
	"encoding/binary"
	"math"
	"sync"
	"unsafe"

	"pnode/kernels/gpu"
	"pnode/kernels/native"
)

// fakeBLASState is a cuBLASLt on the active fake.
type fakeBLASState struct {
	fail     map[blasFunction]int32
	factor   float64          // of wrong results
	spoiled  map[uintptr]bool // types of factors of which results are wrong
	done     map[uintptr]int  // products by the type of their factors
	handles  int              // that are not given back
	set      map[uintptr]map[uintptr]uint64
	layouts  map[uintptr]fakeLayout
	products int
}

type fakeLayout struct{ dtype, rows, columns, pitch uintptr }

func newFakeBLAS() *fakeBLASState {
	return &fakeBLASState{done: map[uintptr]int{}, set: map[uintptr]map[uintptr]uint64{}, layouts: map[uintptr]fakeLayout{}}
}

// lockedBLAS runs an entry point; making and giving back handles is counted.
func lockedBLAS(fn blasFunction, handles int, do func(f *fake) int32) uintptr {
	f := active
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.retained[f.current[threadID()]] == 0 {
		f.refuse(invalidContext, "%v on a thread without a live context", fn)
	}
	if r := f.blas.fail[fn]; r != 0 {
		return uintptr(r)
	}
	f.blas.handles += handles
	return uintptr(do(f))
}

func give(to *uintptr) func(f *fake) int32 {
	return func(f *fake) int32 {
		*to = f.handle()
		f.blas.set[*to] = map[uintptr]uint64{}
		return 0
	}
}

func fine(*fake) int32 { return 0 }

func set(object, attribute uintptr, value *byte, bytes uintptr) func(f *fake) int32 {
	return func(f *fake) int32 {
		raw := make([]byte, 8)
		copy(raw, unsafe.Slice(value, bytes))
		f.blas.set[object][attribute] = binary.LittleEndian.Uint64(raw)
		return 0
	}
}

// fakeBLASLibrary are entry points that call the active fake.
var fakeBLASLibrary = sync.OnceValues(func() (*blasLibrary, error) {
	l := &blasLibrary{}
	for fn, f := range map[blasFunction]any{
		blasCreate:  func(to *uintptr) uintptr { return lockedBLAS(blasCreate, 1, give(to)) },
		blasDestroy: func(uintptr) uintptr { return lockedBLAS(blasDestroy, -1, fine) },
		blasDescCreate: func(to *uintptr, compute, scale uintptr) uintptr {
			if compute != 68 || scale != 0 {
				return 7
			}
			return lockedBLAS(blasDescCreate, 1, give(to))
		},
		blasDescSet: func(object, attribute uintptr, value *byte, bytes uintptr) uintptr {
			return lockedBLAS(blasDescSet, 0, set(object, attribute, value, bytes))
		},
		blasDescDestroy: func(uintptr) uintptr { return lockedBLAS(blasDescDestroy, -1, fine) },
		blasLayoutCreate: func(to *uintptr, dtype, rows, columns, pitch uintptr) uintptr {
			return lockedBLAS(blasLayoutCreate, 1, func(f *fake) int32 {
				give(to)(f)
				f.blas.layouts[*to] = fakeLayout{dtype, rows, columns, pitch}
				return 0
			})
		},
		blasLayoutDestroy:    func(uintptr) uintptr { return lockedBLAS(blasLayoutDestroy, -1, fine) },
		blasPreferenceCreate: func(to *uintptr) uintptr { return lockedBLAS(blasPreferenceCreate, 1, give(to)) },
		blasPreferenceSet: func(object, attribute uintptr, value *byte, bytes uintptr) uintptr {
			return lockedBLAS(blasPreferenceSet, 0, set(object, attribute, value, bytes))
		},
		blasPreferenceDestroy: func(uintptr) uintptr { return lockedBLAS(blasPreferenceDestroy, -1, fine) },
		blasHeuristic:         fakeHeuristic,
		blasMatmul:            fakeMatmul,
	} {
		l[fn] = native.Callback(f)
	}
	return l, nil
})

// fakeHeuristic has an algorithm for most products that tells their alignments.
func fakeHeuristic(handle, desc, a, b, c, d, preference, wanted uintptr, best *heuristic, found *int32) uintptr {
	return lockedBLAS(blasHeuristic, 0, func(f *fake) int32 {
		p := f.blas.set[preference]
		if wanted != 1 || p[1] == 0 || p[5] < 2 || p[6] < 2 || p[7] < 2 || p[8] < 2 || f.blas.layouts[d].rows%5 == 0 {
			*found = 0
			return 15
		}
		*found, best.algorithm[0], best.algorithm[63] = 1, 42, 43
		return 0
	})
}

// fakeMatmul computes d = alpha * op(a) * op(b) + beta*c + bias by columns, as cuBLASLt does.
func fakeMatmul(handle, desc uintptr, alpha *float32, a, aLayout, b, bLayout uintptr, beta *float32, c, cLayout, d, dLayout uintptr,
	algorithm *[64]byte, workspace, workspaceSize, stream uintptr,
) uintptr {
	return lockedBLAS(blasMatmul, 0, func(f *fake) int32 {
		if c != d || cLayout != dLayout || *alpha != 1 || algorithm[0] != 42 || algorithm[63] != 43 {
			f.refuse(invalidValue, "a product of %#x and %#x", c, d)
			return 7
		}
		f.at(workspace, workspaceSize)
		options, adding := f.blas.set[desc], *beta != 0
		left := fakeMatrix{f, a, f.blas.layouts[aLayout], options[3] != 0}
		right := fakeMatrix{f, b, f.blas.layouts[bLayout], options[4] != 0}
		out := fakeMatrix{f, d, f.blas.layouts[dLayout], false}
		bias := fakeMatrix{f, uintptr(options[8]), fakeLayout{0, out.layout.rows, 1, out.layout.rows}, false}
		withBias := options[7] == 4
		f.blas.products++
		f.blas.done[left.layout.dtype]++
		factor := 1.0
		if f.blas.spoiled[left.layout.dtype] {
			factor = f.blas.factor
		}
		f.enqueue(stream, func() error {
			x, y, z, first := left.read(), right.read(), out.read(), []float64{}
			if withBias {
				first = bias.read()
			}
			for i := range z {
				row, column := i%int(out.layout.rows), i/int(out.layout.rows)
				sum := 0.0
				for k := range left.depth() {
					sum += x[left.index(row, k)] * y[right.index(k, column)]
				}
				if withBias {
					sum += first[row]
				}
				if adding {
					sum += z[i]
				}
				z[i] = sum * factor
			}
			out.write(z)
			return f.work.Sync()
		})
		return 0
	})
}

// fakeMatrix is an operand with columns together.
type fakeMatrix struct {
	f          *fake
	address    uintptr
	layout     fakeLayout
	transposed bool
}

func (m fakeMatrix) depth() int {
	if m.transposed {
		return int(m.layout.rows)
	}
	return int(m.layout.columns)
}

func (m fakeMatrix) index(row, column int) int {
	if m.transposed {
		row, column = column, row
	}
	return row + column*int(m.layout.pitch)
}

func (m fakeMatrix) size() int {
	if m.layout.dtype == typeF32 {
		return 4
	}
	return 2
}

func (m fakeMatrix) bytes() int { return m.size() * int(m.layout.rows*m.layout.columns) }

func (m fakeMatrix) place() (gpu.Memory, int) {
	b, at, _ := m.f.at(m.address, uintptr(m.bytes()))
	return b.memory, at
}

func (m fakeMatrix) read() (x []float64) {
	raw := make([]byte, m.bytes())
	memory, at := m.place()
	if m.f.work.Read(raw, memory, at) != nil || m.f.work.Sync() != nil {
		m.f.refuse(invalidValue, "an operand cannot be read")
	}
	for i := 0; i < len(raw); i += m.size() {
		switch m.layout.dtype {
		case typeBF16:
			x = append(x, float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(raw[i:]))<<16)))
		case typeF16:
			x = append(x, finiteF16(binary.LittleEndian.Uint16(raw[i:])))
		default:
			x = append(x, float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[i:]))))
		}
	}
	return x
}

// finiteF16 is the number of the bits of a finite f16.
func finiteF16(bits uint16) float64 {
	exponent, mantissa := int(bits>>10&0x1f), float64(bits&0x3ff)
	if exponent > 0 {
		exponent, mantissa = exponent-1, mantissa+1<<10
	}
	return math.Copysign(math.Ldexp(mantissa, exponent-24), 1-float64(bits>>15)*2)
}

// write rounds to nearest, ties to even; nobody asks for f16.
func (m fakeMatrix) write(x []float64) {
	var raw []byte
	for _, v := range x {
		bits := math.Float32bits(float32(v))
		if m.size() == 2 {
			raw = binary.LittleEndian.AppendUint16(raw, uint16((bits+0x7fff+bits>>16&1)>>16))
			continue
		}
		raw = binary.LittleEndian.AppendUint32(raw, bits)
	}
	memory, at := m.place()
	if err := m.f.work.Write(memory, at, raw); err != nil {
		m.f.refuse(invalidValue, "%v", err)
	}
}
