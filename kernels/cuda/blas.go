package cuda

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"pnode/kernels"
	"pnode/kernels/native"
)

// errNoBLAS says that cuBLASLt is not installed: it comes with the toolkit and with other
// programs, not with the driver.
var errNoBLAS = errors.New("cuda: no cuBLASLt on this machine")

// blasFunction is a function of cuBLASLt that the package calls.
type blasFunction int

const (
	blasCreate blasFunction = iota
	blasDestroy
	blasDescCreate
	blasDescSet
	blasDescDestroy
	blasLayoutCreate
	blasLayoutDestroy
	blasPreferenceCreate
	blasPreferenceSet
	blasPreferenceDestroy
	blasHeuristic
	blasMatmul
	blasFunctionCount
)

var blasFunctionNames = [blasFunctionCount]string{
	"cublasLtCreate", "cublasLtDestroy", "cublasLtMatmulDescCreate", "cublasLtMatmulDescSetAttribute", "cublasLtMatmulDescDestroy",
	"cublasLtMatrixLayoutCreate", "cublasLtMatrixLayoutDestroy", "cublasLtMatmulPreferenceCreate",
	"cublasLtMatmulPreferenceSetAttribute", "cublasLtMatmulPreferenceDestroy", "cublasLtMatmulAlgoGetHeuristic", "cublasLtMatmul",
}

func (f blasFunction) String() string { return blasFunctionNames[f] }

// blasLibrary is the address of each function.
type blasLibrary [blasFunctionCount]uintptr

// blasFiles are where it may be. The major version is that of CUDA.
var blasFiles = []string{
	"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11", "libcublasLt.so",
	"cublasLt64_13.dll", "cublasLt64_12.dll", "cublasLt64_11.dll",
}

// loadBLAS opens the library once.
var loadBLAS = sync.OnceValues(func() (*blasLibrary, error) {
	functions, err := native.Library{
		Files: blasFiles, Functions: blasFunctionNames[:], Missing: errNoBLAS, Outdated: "cuda: cuBLASLt is older than CUDA 11",
	}.Open()
	if err != nil {
		return nil, err
	}
	return (*blasLibrary)(functions), nil
})

// check calls a function; the codes of its errors are cublasStatus_t. Pointers among the
// arguments are converted in the call itself.
//
//go:uintptrescapes
func (l *blasLibrary) check(f blasFunction, args ...uintptr) error {
	if status := int32(native.Call(l[f], args...)); status != 0 {
		return fmt.Errorf("cuda: %v: cuBLAS error %d", f, status)
	}
	return nil
}

// blas multiplies matrices of halves by cuBLASLt. Its methods are called within the driver's do.
type blas struct {
	lib    *blasLibrary
	handle uintptr
	halves []kernels.DType // that it multiplies

	mu       sync.Mutex // guards products
	products map[shape]*product
}

// maxProducts bounds the shapes that are prepared; more go to the package's own kernels.
const maxProducts = 1 << 10

// multiplies reports whether it multiplies a half; nil multiplies none.
func (b *blas) multiplies(half kernels.DType) bool {
	return b != nil && slices.Contains(b.halves, half)
}

func (b *blas) close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var errs []error
	for _, p := range b.products {
		if p != nil {
			errs = append(errs, p.release(b.lib))
		}
	}
	return errors.Join(append(errs, b.lib.check(blasDestroy, b.handle))...)
}

// product is the prepared product of a shape, nil where cuBLASLt has none.
func (b *blas) product(s shape) *product {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, known := b.products[s]
	if !known && len(b.products) < maxProducts {
		p = s.prepare(b)
		b.products[s] = p
	}
	return p
}
