package cuda

import (
	"encoding/binary"
	"fmt"

	"pnode/kernels"
	"pnode/kernels/gpu"
)

// issue is a launch, or a product of cuBLASLt, as it will be enqueued.
type issue struct {
	kernel  uintptr   // 0 for a product
	grid    [6]uint32 // groups and their work-items, three dimensions each
	params  []byte    // as the kernel reads them
	product *product
	args    blasArgs
	name    string
}

// segment are issues that are put off until the stream is used for something else: as long as
// passes are the same, so are their segments.
type segment struct {
	issues []issue // with the memory of earlier ones behind them
	// key is of what is the same for each pass over the same memory: kernels, grids and addresses.
	// Numbers (seeds, rates, scales) are not in it.
	key uint64
}

// maxIssues bounds a segment, so that a card that has nothing to do begins soon.
const maxIssues = 256

// next is a new issue at the end.
func (s *segment) next(name string) *issue {
	n := len(s.issues)
	if n < cap(s.issues) {
		s.issues = s.issues[:n+1]
	} else {
		s.issues = append(s.issues, issue{})
	}
	i := &s.issues[n]
	*i = issue{params: i.params[:0], name: name}
	return i
}

// mix makes words part of the key (FNV-1a over words).
func (s *segment) mix(words ...uint64) {
	for _, w := range words {
		s.key = (s.key ^ w) * 1099511628211
		s.key ^= s.key >> 32
	}
}

// launch puts a launch off, unless the card cannot do it.
func (s *segment) launch(l *gpu.Launch, k kernel) error {
	if l.Groups[1] > maxGroupsBehind || l.Groups[2] > maxGroupsBehind {
		return fmt.Errorf("%w: cuda: %v groups, at most %d in the last two dimensions", kernels.ErrUnsupported, l.Groups, maxGroupsBehind)
	}
	i := s.next(l.Kernel)
	i.kernel = k.handle
	i.grid = [6]uint32{uint32(l.Groups[0]), uint32(l.Groups[1]), uint32(l.Groups[2]), uint32(l.Items[0]), uint32(l.Items[1]), 1}
	i.pack(l.Params)
	if len(i.params) != k.paramBytes || len(i.params) > maxParamBytes {
		s.issues = s.issues[:len(s.issues)-1]
		return fmt.Errorf("cuda: parameters of %d bytes, the kernel takes %d", len(i.params), k.paramBytes)
	}
	s.mix(uint64(k.handle), uint64(l.Groups[0]), uint64(l.Groups[1]), uint64(l.Groups[2]))
	at := 0
	for _, a := range l.Args {
		n := 1
		if a.Kind == gpu.View || a.Kind == gpu.Scratch {
			n = 2
			s.mix(l.Params[at].Bits, l.Params[at+1].Bits)
		}
		at += n
	}
	return nil
}

// pack lays parameters out as a kernel reads them, each at a multiple of its size.
func (i *issue) pack(params []gpu.Param) {
	for _, p := range params {
		for len(i.params)%p.Bytes != 0 {
			i.params = append(i.params, 0)
		}
		if p.Bytes == 4 {
			i.params = binary.LittleEndian.AppendUint32(i.params, uint32(p.Bits))
		} else {
			i.params = binary.LittleEndian.AppendUint64(i.params, p.Bits)
		}
	}
}

// put puts launches off.
func (s *stream) put(launches []gpu.Launch) error {
	for i := range launches {
		l := &launches[i]
		if p, args := s.factors(l); p != nil {
			i := s.segment.next(l.Kernel)
			i.product, i.args = p, args
			s.segment.mix(uint64(args.out), uint64(args.a), uint64(args.b), uint64(args.bias), args.m, args.n, args.k)
			continue
		}
		k, ok := s.driver.module.kernels[l.Kernel]
		if !ok {
			return fmt.Errorf("%s: cuda: the PTX has no such kernel", l.Kernel)
		}
		if err := s.segment.launch(l, k); err != nil {
			return fmt.Errorf("%s: %w", l.Kernel, err)
		}
	}
	return nil
}

// flush enqueues what was put off: as a graph if there is one for it, else one by one.
func (s *stream) flush() error {
	defer func() { s.segment.issues, s.segment.key = s.segment.issues[:0], 0 }()
	if done, err := s.graphs.run(s); done || err != nil {
		return err
	}
	for k := range s.segment.issues {
		i := &s.segment.issues[k]
		if err := s.enqueue(i); err != nil {
			return fmt.Errorf("%s: %w", i.name, err)
		}
	}
	return nil
}
