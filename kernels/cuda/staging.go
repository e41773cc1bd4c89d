package cuda

import "unsafe"

// staging is page-locked host memory of a stream: only copies between such memory and the card
// run while the host and the card's kernels go on. It fills up until the stream is waited for.
// Its methods are called within the driver's do.
type staging struct {
	driver   *driver
	memory   []byte // nil until the first copy
	used     int
	landings []landing
}

// landing is a place in the memory of the program for bytes that the card writes to staging.
type landing struct{ to, from []byte }

// A copy is cut into pieces, so that the card receives one while the next is written.
const (
	stagingBytes = 16 << 20
	pieceBytes   = 2 << 20
)

// open gets the memory.
func (s *staging) open() error {
	if s.memory != nil {
		return nil
	}
	var p unsafe.Pointer
	if err := s.driver.lib.check(memHostAlloc, uintptr(unsafe.Pointer(&p)), stagingBytes, 0); err != nil {
		return err
	}
	s.memory = unsafe.Slice((*byte)(p), stagingBytes)
	return nil
}

func (s *staging) room() int { return len(s.memory) - s.used }

// next takes so many bytes of the room, with their address.
func (s *staging) next(bytes int) (place []byte, address uintptr) {
	place = s.memory[s.used : s.used+bytes]
	s.used += bytes
	return place, uintptr(unsafe.Pointer(unsafe.SliceData(place)))
}

// empty makes room; the bytes for the program are there unless the stream failed.
func (s *staging) empty(arrived bool) {
	for _, l := range s.landings {
		if arrived {
			copy(l.to, l.from)
		}
	}
	clear(s.landings) // holds on to no memory of the program
	s.landings, s.used = s.landings[:0], 0
}

func (s *staging) close() error {
	if s.memory == nil {
		return nil
	}
	address := uintptr(unsafe.Pointer(unsafe.SliceData(s.memory)))
	s.memory = nil
	return s.driver.lib.check(memFreeHost, address)
}
