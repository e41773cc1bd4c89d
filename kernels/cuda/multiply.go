package cuda

import (
	"unsafe"

	"pnode/kernels/gpu"
)

// multiplier is what a stream needs to have cuBLASLt multiply; the words are what calls pass,
// in the memory of the stream.
type multiplier struct {
	workspace   uintptr // on the card, 0 until the first product
	words       [16]uintptr
	alpha, beta float32
	bias        uintptr
}

// multiply enqueues a product by cuBLASLt; done is false for launches that are none, and for
// products that it does not do.
func (s *stream) multiply(l *gpu.Launch) (done bool, err error) {
	b, m := s.driver.blas, &s.multiplier
	if b == nil {
		return false, nil
	}
	args, ok := blasArgsOf(l)
	if !ok {
		return false, nil
	}
	p := b.product(args.shape)
	if p == nil || !s.reserveWorkspace() {
		return false, nil
	}
	b.mu.Lock() // a bias is set in what all streams share
	defer b.mu.Unlock()
	if args.withBias {
		m.bias = args.bias
		m.words = [16]uintptr{p.desc, descBias, uintptr(unsafe.Pointer(&m.bias)), blasLongBytes}
		if err := b.lib.check(blasDescSet, m.words[:4]...); err != nil {
			return false, err
		}
	}
	m.alpha, m.beta = 1, float32(flagged(args.adding))
	m.words = [16]uintptr{
		b.handle, p.desc, uintptr(unsafe.Pointer(&m.alpha)), args.b, p.layoutB, args.a, p.layoutA, uintptr(unsafe.Pointer(&m.beta)),
		args.out, p.layoutOut, args.out, p.layoutOut, uintptr(unsafe.Pointer(&p.algorithm)), m.workspace, workspaceBytes, s.handle,
	}
	return true, b.lib.check(blasMatmul, m.words[:]...)
}

// reserveWorkspace gets the workspace; without room for it the package's own kernels do.
func (s *stream) reserveWorkspace() bool {
	m := &s.multiplier
	if m.workspace != 0 {
		return true
	}
	if s.driver.budget.Take(workspaceBytes) != nil {
		return false
	}
	if s.driver.lib.call(memAlloc, uintptr(unsafe.Pointer(&m.workspace)), workspaceBytes) != success {
		s.driver.budget.Give(workspaceBytes)
		return false
	}
	return true
}

// releaseWorkspace gives it back.
func (s *stream) releaseWorkspace() error {
	if s.multiplier.workspace == 0 {
		return nil
	}
	s.driver.budget.Give(workspaceBytes)
	at := s.multiplier.workspace
	s.multiplier.workspace = 0
	return s.driver.lib.check(memFree, at)
}
