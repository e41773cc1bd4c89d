package cuda

import (
	"errors"
	"math/bits"
	"strings"
	"unsafe"

	"pnode/kernels"
	"pnode/kernels/gpu"
)

// blasArgs are the arguments of a launch of gpu's kernels for products of halves.
type blasArgs struct {
	shape
	out, a, b, bias uintptr
}

// shape is a product that can be prepared: out[M,N] (+)= A*B + bias[N].
type shape struct {
	m, n, k                  uint64
	half                     kernels.DType // of A and B
	transA, transB, outHalf  bool
	withBias, adding         bool
	alignA, alignB, alignOut uint32 // bytes
}

// forms are the kernels for products that cuBLASLt does, by what comes before _nn, _nt, _tn or _tt in
// their names. Those of f16 on vector units are for the matrix units of compute capability 7.0, which
// there are no other kernels for.
var forms = [...]struct {
	prefix string
	half   kernels.DType
}{{"matmul_mma_bf16_", kernels.BF16}, {"matmul_mma_f16_", kernels.F16}, {"matmul_f16_", kernels.F16}}

// formOf is the type of a kernel's factors, and how they are stored: empty where it is no such kernel.
func formOf(kernel string) (half kernels.DType, form string) {
	for _, f := range forms {
		if form, ok := strings.CutPrefix(kernel, f.prefix); ok && len(form) >= 2 {
			return f.half, form[:2]
		}
	}
	return 0, ""
}

// blasArgsOf reads the launch of a kernel for products; ok reports whether it is one that cuBLASLt does.
// Their parameters are out, outAt, outType, a, aAt, b, bAt, bias, biasAt, M, N, K, accumulate.
func blasArgsOf(l *gpu.Launch) (args blasArgs, ok bool) {
	half, form := formOf(l.Kernel)
	if form == "" || len(l.Params) != 13 {
		return args, false
	}
	p := func(k int) uint64 { return l.Params[k].Bits }
	outBytes := uint64(4)
	if p(2) != 0 {
		outBytes = 2
		if half == kernels.F16 {
			return args, false // it would make what is too large infinite
		}
	}
	args = blasArgs{
		out: uintptr(p(0) + outBytes*p(1)), a: uintptr(p(3) + 2*p(4)), b: uintptr(p(5) + 2*p(6)), bias: uintptr(p(7) + 4*p(8)),
		shape: shape{
			m: p(9), n: p(10), k: p(11), half: half, transA: form[0] == 't', transB: form[1] == 't',
			outHalf: p(2) != 0, withBias: p(7) != 0, adding: p(12) != 0,
		},
	}
	args.alignA, args.alignB, args.alignOut = alignment(args.a), alignment(args.b), alignment(args.out)
	return args, true
}

// alignment is the largest power of two up to 256 that divides an address.
func alignment(address uintptr) uint32 { return 1 << min(8, bits.TrailingZeros64(uint64(address))) }

// product is a prepared product. cuBLASLt has columns together, where this program has rows: it
// is asked for the transposed product out' = B' A', with its first matrix B and its second A.
type product struct {
	desc                        uintptr
	layoutB, layoutA, layoutOut uintptr
	algorithm                   [64]byte
}

// Numbers of cuBLASLt: types, attributes, values.
const (
	typeF32, typeF16, typeBF16 = 0, 2, 14
	computeF32                 = 68

	descTransA, descTransB      = 3, 4
	descEpilogue, descBias      = 7, 8
	epilogueBias                = 4
	preferWorkspaceBytes        = 1
	preferAlignA, preferAlignB  = 5, 6
	preferAlignC, preferAlignD  = 7, 8
	workspaceBytes              = 32 << 20
	blasIntBytes, blasLongBytes = 4, 8
)

// heuristic is cublasLtMatmulHeuristicResult_t.
type heuristic struct {
	algorithm [64]byte
	workspace uint64
	state     int32
	waves     float32
	_         [4]int32
}

// prepare makes what a product of this shape needs; nil where cuBLASLt cannot do it.
func (s shape) prepare(b *blas) *product {
	p := &product{}
	err := p.describe(b.lib, s)
	if err == nil {
		err = p.choose(b, s)
	}
	if err != nil {
		_ = p.release(b.lib) // the package's own kernel takes the place
		return nil
	}
	return p
}

func (p *product) describe(lib *blasLibrary, s shape) error {
	outType := uintptr(typeF32)
	if s.outHalf {
		outType = s.halfType()
	}
	return errors.Join(
		lib.check(blasDescCreate, uintptr(unsafe.Pointer(&p.desc)), computeF32, typeF32),
		lib.setInt(p.desc, descTransA, flagged(s.transB)),
		lib.setInt(p.desc, descTransB, flagged(s.transA)),
		lib.setInt(p.desc, descEpilogue, 1+flagged(s.withBias)*(epilogueBias-1)),
		lib.layout(&p.layoutB, s.halfType(), s.n, s.k, s.transB),
		lib.layout(&p.layoutA, s.halfType(), s.k, s.m, s.transA),
		lib.layout(&p.layoutOut, outType, s.n, s.m, false),
	)
}

// halfType is how cuBLASLt calls the type of A and B.
func (s shape) halfType() uintptr {
	if s.half == kernels.F16 {
		return typeF16
	}
	return typeBF16
}

func flagged(set bool) uint32 {
	if set {
		return 1
	}
	return 0
}

func (l *blasLibrary) setInt(desc, attribute uintptr, value uint32) error {
	return l.check(blasDescSet, desc, attribute, uintptr(unsafe.Pointer(&value)), blasIntBytes)
}

// layout makes that of a matrix of rows x columns, columns together, as it is stored.
func (l *blasLibrary) layout(to *uintptr, dtype uintptr, rows, columns uint64, transposed bool) error {
	if transposed {
		rows, columns = columns, rows
	}
	return l.check(blasLayoutCreate, uintptr(unsafe.Pointer(to)), dtype, uintptr(rows), uintptr(columns), uintptr(rows))
}

// choose asks for the best algorithm.
func (p *product) choose(b *blas, s shape) error {
	var preference uintptr
	if err := b.lib.check(blasPreferenceCreate, uintptr(unsafe.Pointer(&preference))); err != nil {
		return err
	}
	workspace := uint64(workspaceBytes)
	errs := []error{b.lib.check(blasPreferenceSet, preference, preferWorkspaceBytes, uintptr(unsafe.Pointer(&workspace)), blasLongBytes)}
	for _, a := range []struct {
		attribute uintptr
		bytes     uint32
	}{{preferAlignA, s.alignB}, {preferAlignB, s.alignA}, {preferAlignC, s.alignOut}, {preferAlignD, s.alignOut}} {
		errs = append(errs, b.lib.check(blasPreferenceSet, preference, a.attribute, uintptr(unsafe.Pointer(&a.bytes)), blasIntBytes))
	}
	var best heuristic
	var found int32
	errs = append(errs, b.lib.check(blasHeuristic, b.handle, p.desc, p.layoutB, p.layoutA, p.layoutOut, p.layoutOut, preference, 1,
		uintptr(unsafe.Pointer(&best)), uintptr(unsafe.Pointer(&found))))
	if found < 1 || best.state != 0 {
		errs = append(errs, errors.New("cuda: cuBLASLt has no such product"))
	}
	p.algorithm = best.algorithm
	return errors.Join(append(errs, b.lib.check(blasPreferenceDestroy, preference))...)
}

func (p *product) release(lib *blasLibrary) error {
	var errs []error
	for _, r := range []struct {
		by     blasFunction
		handle uintptr
	}{{blasDescDestroy, p.desc}, {blasLayoutDestroy, p.layoutB}, {blasLayoutDestroy, p.layoutA}, {blasLayoutDestroy, p.layoutOut}} {
		if r.handle != 0 {
			errs = append(errs, lib.check(r.by, r.handle))
		}
	}
	return errors.Join(errs...)
}
