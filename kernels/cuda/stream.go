package cuda

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"pnode/kernels"
	"pnode/kernels/gpu"
)

// stream is an in-order stream of a card.
type stream struct {
	driver     *driver
	handle     uintptr
	staging    staging
	multiplier multiplier

	// What calls pass to the driver: the arguments of its function, and what these point to,
	// in the memory of the stream, so that they allocate none.
	words      [11]uintptr
	extra      [5]uintptr
	params     [maxParamBytes]byte
	paramBytes uintptr
}

// maxParamBytes is more than any kernel takes.
const maxParamBytes = 512

// Cards have many groups in the first dimension, and this many in the others.
const maxGroupsBehind = 1<<16 - 1

// NewStream gives a stream.
func (d *driver) NewStream() (gpu.Stream, error) {
	s := &stream{driver: d, staging: staging{driver: d}}
	err := d.do(func() error {
		return d.lib.check(streamCreate, uintptr(unsafe.Pointer(&s.handle)), streamNonBlocking)
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Execute enqueues launches.
func (s *stream) Execute(launches []gpu.Launch) error {
	return s.driver.do(func() error {
		for i := range launches {
			done, err := s.multiply(&launches[i])
			if !done && err == nil {
				err = s.launch(&launches[i])
			}
			if err != nil {
				return fmt.Errorf("%s: %w", launches[i].Kernel, err)
			}
		}
		return nil
	})
}

func (s *stream) launch(l *gpu.Launch) error {
	k, ok := s.driver.module.kernels[l.Kernel]
	if !ok {
		return errors.New("cuda: the PTX has no such kernel")
	}
	if l.Groups[1] > maxGroupsBehind || l.Groups[2] > maxGroupsBehind {
		return fmt.Errorf("%w: cuda: %v groups, at most %d in the last two dimensions", kernels.ErrUnsupported, l.Groups, maxGroupsBehind)
	}
	if n := s.pack(l.Params); n != k.paramBytes {
		return fmt.Errorf("cuda: parameters of %d bytes, the kernel takes %d", n, k.paramBytes)
	}
	const paramPointer, paramSize, end = 1, 2, 0
	s.extra = [5]uintptr{paramPointer, uintptr(unsafe.Pointer(&s.params)), paramSize, uintptr(unsafe.Pointer(&s.paramBytes)), end}
	s.words = [11]uintptr{
		k.handle, uintptr(l.Groups[0]), uintptr(l.Groups[1]), uintptr(l.Groups[2]), uintptr(l.Items[0]), uintptr(l.Items[1]), 1,
		0, s.handle, 0, uintptr(unsafe.Pointer(&s.extra)),
	}
	return s.driver.lib.check(launchKernel, s.words[:]...)
}

// pack lays parameters out as a kernel reads them, each at a multiple of its size.
func (s *stream) pack(params []gpu.Param) (n int) {
	for _, p := range params {
		n = align(n, p.Bytes)
		if p.Bytes == 4 {
			binary.LittleEndian.PutUint32(s.params[n:], uint32(p.Bits))
		} else {
			binary.LittleEndian.PutUint64(s.params[n:], p.Bits)
		}
		n += p.Bytes
	}
	s.paramBytes = uintptr(n)
	return n
}

// Write copies to the card by way of staging: from is not used any more when it returns.
func (s *stream) Write(to gpu.Memory, at int, from []byte) error {
	return s.driver.do(func() error {
		return s.pieces(len(from), func(piece, done int) error {
			place, host := s.staging.next(piece)
			copy(place, from[done:])
			return s.copy(memcpyHtoDAsync, uintptr(to)+uintptr(at+done), host, piece)
		})
	})
}

// Read copies from the card to staging; Sync copies on to its place.
func (s *stream) Read(to []byte, from gpu.Memory, at int) error {
	return s.driver.do(func() error {
		return s.pieces(len(to), func(piece, done int) error {
			place, host := s.staging.next(piece)
			err := s.copy(memcpyDtoHAsync, host, uintptr(from)+uintptr(at+done), piece)
			if err == nil {
				s.staging.land(to[done:done+piece], place)
			}
			return err
		})
	})
}

// pieces cuts a copy into what fits into staging, and waits where that is full.
func (s *stream) pieces(bytes int, each func(piece, done int) error) error {
	if err := s.staging.open(); err != nil {
		return err
	}
	for done := 0; done < bytes; {
		if s.staging.room() == 0 {
			if err := s.drain(); err != nil {
				return err
			}
		}
		piece := min(bytes-done, pieceBytes, s.staging.room())
		if err := each(piece, done); err != nil {
			return err
		}
		done += piece
	}
	return nil
}

// copy enqueues a copy of one piece.
func (s *stream) copy(f function, to, from uintptr, bytes int) error {
	s.words = [11]uintptr{to, from, uintptr(bytes), s.handle}
	return s.driver.lib.check(f, s.words[:4]...)
}

// drain waits for everything that was enqueued and empties staging.
func (s *stream) drain() error {
	err := s.driver.lib.check(streamSynchronize, s.handle)
	s.staging.empty(err == nil)
	return err
}

// Sync waits for everything that was enqueued.
func (s *stream) Sync() error { return s.driver.do(s.drain) }

// Close gives the stream back. A closed card has taken it already.
func (s *stream) Close() error {
	err := s.driver.do(func() error {
		return errors.Join(s.staging.close(), s.releaseWorkspace(), s.driver.lib.check(streamDestroy, s.handle))
	})
	if errors.Is(err, gpu.ErrClosed) {
		return nil
	}
	return err
}
