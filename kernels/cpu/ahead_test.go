package cpu

import (
	"testing"
	"unsafe"

	"pnode/kernels"
)

// TestAhead asks for rows in calls of several lengths, as micro-kernels do, and looks whether all
// of the columns came.
func TestAhead(t *testing.T) {
	const stride, n, columns = 300, 37, 50
	for _, x := range []stored{{wide: make([]float32, stride*n)}, {half: make([]uint16, stride*n)}} {
		first, size := unsafe.Pointer(unsafe.SliceData(x.wide)), floatBytes
		if x.half != nil {
			first, size = unsafe.Pointer(unsafe.SliceData(x.half)), kernels.BF16.SizeBytes()
		}
		for _, width := range []int{64, 128} {
			var a ahead
			a.add(x, stride, n, columns, width)
			a.add(x, stride, 0, columns, width)
			a.add(x, stride, n, columns, 0)
			asked := map[int]bool{}
			for rounds := 1; ; rounds++ {
				at, step := a.next(rounds)
				if at == 0 {
					break
				}
				for i := range rounds {
					for b := range width {
						asked[int(at)-int(uintptr(first))+i*step+b] = true
					}
				}
			}
			for row := range n {
				for b := range columns * size {
					if !asked[row*stride*size+b] {
						t.Fatalf("elements of %d bytes, strips of %d: byte %d of row %d was not asked for", size, width, b, row)
					}
				}
			}
			if a.add(x, stride, n, columns, width); a.now == len(a.strips) {
				t.Error("strips that were added after the end are not asked for")
			}
			if a.clear(); a.now != len(a.strips) {
				t.Error("strips are left after clear")
			}
		}
	}
}
