package cpu

import (
	"unsafe"

	"pnode/kernels"
)

// ahead is memory that a worker's micro-kernels ask for while they compute: loops that come later
// find it in the second cache. Rows of a head are so far apart that the processor does not guess the
// next one, and a loop that copies them waits for memory.
type ahead struct {
	strips []strip
	now    int // the strip that is asked for
}

// strip is as much of each of some rows as a micro-kernel asks for at one time.
type strip struct {
	at         uintptr
	step, rows int // step in bytes
}

func (a *ahead) clear() { a.strips, a.now = a.strips[:0], 0 }

// add appends n rows of some columns of x, in strips of `width` bytes; without width none. Of a row
// that begins inside a line, the end may be left out.
func (a *ahead) add(x stored, stride, n, columns, width int) {
	if width == 0 || n <= 0 {
		return
	}
	first, size := unsafe.Pointer(unsafe.SliceData(x.wide)), floatBytes
	if x.half != nil {
		first, size = unsafe.Pointer(unsafe.SliceData(x.half)), kernels.BF16.SizeBytes()
	}
	for from := 0; from < columns*size; from += width {
		a.strips = append(a.strips, strip{at: uintptr(first) + uintptr(from), step: stride * size, rows: n})
	}
}

// next returns the rows that a call of some rounds of K asks for: a row in each round. It may run past
// the end of a strip: the rows there are mostly the next sequence's, so this costs little.
func (a *ahead) next(rounds int) (at uintptr, step int) {
	if a.now == len(a.strips) {
		return 0, 0
	}
	s := &a.strips[a.now]
	at, step = s.at, s.step
	s.at += uintptr(rounds * step)
	s.rows -= rounds
	if s.rows <= 0 {
		a.now++
	}
	return at, step
}
