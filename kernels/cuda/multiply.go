package cuda

import (
	"unsafe"

	"pnode/kernels/gpu"
)

// multiplier holds a stream's handles of cuBLASLt; the words are what calls pass,
// in the memory of the stream.
type multiplier struct {
	asked       bool    // for the workspace
	workspace   uintptr // on the card, 0 until it was asked for, or where there was no room
	words       [16]uintptr
	alpha, beta float32
	bias        uintptr
}

// factors says what a launch multiplies, where cuBLASLt does that: p is nil for what is no product
// and for those that it does not do.
func (s *stream) factors(l *gpu.Launch) (p *product, args blasArgs) {
	b := s.driver.blas
	if b == nil {
		return nil, args
	}
	args, ok := blasArgsOf(l)
	if !ok || !b.multiplies(args.half) {
		return nil, args
	}
	if p = b.product(args.shape); p == nil || !s.reserveWorkspace() {
		return nil, args
	}
	return p, args
}

// Prepare chooses how products are done, and takes the workspace for them before memory that is
// left is given to anything else.
func (s *stream) Prepare(launches []gpu.Launch) error {
	return s.driver.do(func() error {
		for i := range launches {
			s.factors(&launches[i])
		}
		return nil
	})
}

// multiply enqueues a product by cuBLASLt.
func (s *stream) multiply(p *product, args blasArgs) error {
	b, m := s.driver.blas, &s.multiplier
	b.mu.Lock() // a bias is set in what all streams share
	defer b.mu.Unlock()
	if args.withBias {
		m.bias = args.bias
		m.words = [16]uintptr{p.desc, descBias, uintptr(unsafe.Pointer(&m.bias)), blasLongBytes}
		if err := b.lib.check(blasDescSet, m.words[:4]...); err != nil {
			return err
		}
	}
	m.alpha, m.beta = 1, float32(flagged(args.adding))
	m.words = [16]uintptr{
		b.handle, p.desc, uintptr(unsafe.Pointer(&m.alpha)), args.b, p.layoutB, args.a, p.layoutA, uintptr(unsafe.Pointer(&m.beta)),
		args.out, p.layoutOut, args.out, p.layoutOut, uintptr(unsafe.Pointer(&p.algorithm)), m.workspace, workspaceBytes, s.handle,
	}
	return b.lib.check(blasMatmul, m.words[:]...)
}

// reserveWorkspace gets the workspace; where there is no room for it the first time, the package's
// own kernels do every time.
func (s *stream) reserveWorkspace() bool {
	m := &s.multiplier
	if m.asked {
		return m.workspace != 0
	}
	m.asked = true
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
