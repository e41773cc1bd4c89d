package cuda

import (
	"errors"
	"slices"
	"unsafe"

	"pnode/kernels/gpu"
)

// stream is an in-order stream of a card.
type stream struct {
	driver     *driver
	handle     uintptr
	staging    staging
	multiplier multiplier
	segment    segment
	graphs     graphs

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
	s := &stream{driver: d, staging: staging{driver: d}, graphs: graphs{driver: d, known: map[uint64]*graph{}}}
	s.graphs.off = d.plain || slices.Contains(d.lib[streamBeginCapture:], 0) // the driver lacks functions of graphs
	err := d.do(func() error {
		return d.lib.check(streamCreate, uintptr(unsafe.Pointer(&s.handle)), streamNonBlocking)
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Execute puts launches off, where there may be a graph for them.
func (s *stream) Execute(launches []gpu.Launch) error {
	return s.driver.do(func() error {
		err := s.put(launches)
		if s.graphs.off || len(s.segment.issues) >= maxIssues {
			err = errors.Join(s.flush(), err)
		}
		return err
	})
}

// enqueue has cuBLASLt do a product, or the card a launch.
func (s *stream) enqueue(i *issue) error {
	if i.product != nil {
		return s.multiply(i.product, i.args)
	}
	s.pass(i)
	s.words = [11]uintptr{
		i.kernel, uintptr(i.grid[0]), uintptr(i.grid[1]), uintptr(i.grid[2]), uintptr(i.grid[3]), uintptr(i.grid[4]), uintptr(i.grid[5]),
		0, s.handle, 0, uintptr(unsafe.Pointer(&s.extra)),
	}
	return s.driver.lib.check(launchKernel, s.words[:]...)
}

// pass has the stream's memory hold the parameters of a launch.
func (s *stream) pass(i *issue) {
	s.paramBytes = uintptr(copy(s.params[:], i.params))
	const paramPointer, paramSize, end = 1, 2, 0
	s.extra = [5]uintptr{paramPointer, uintptr(unsafe.Pointer(&s.params)), paramSize, uintptr(unsafe.Pointer(&s.paramBytes)), end}
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
				s.staging.landings = append(s.staging.landings, landing{to[done : done+piece], place})
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
	if err := s.flush(); err != nil {
		return err
	}
	s.words = [11]uintptr{to, from, uintptr(bytes), s.handle}
	return s.driver.lib.check(f, s.words[:4]...)
}

// drain waits for everything that was enqueued and empties staging.
func (s *stream) drain() error {
	flushed := s.flush()
	err := errors.Join(flushed, s.driver.lib.check(streamSynchronize, s.handle))
	s.staging.empty(err == nil)
	return err
}

// Sync waits for everything that was enqueued.
func (s *stream) Sync() error { return s.driver.do(s.drain) }

// Close gives the stream back. A closed card has taken it already.
func (s *stream) Close() error {
	err := s.driver.do(func() error {
		return errors.Join(s.staging.close(), s.releaseWorkspace(), s.graphs.drop(s.driver.lib), s.driver.lib.check(streamDestroy, s.handle))
	})
	if errors.Is(err, gpu.ErrClosed) {
		return nil
	}
	return err
}
