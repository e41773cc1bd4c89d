package cpu

import (
	"testing"
	"unsafe"

	"pnode/kernels/host"
)

// TestAhead asks for rows in calls of several lengths, as micro-kernels do, and looks whether all
// of the columns came.
func TestAhead(t *testing.T) {
	const stride, n, columns = 300, 37, 50
	mem, err := host.Map(stride * n)
	if err != nil {
		t.Fatal(err)
	}
	defer host.Unmap(mem)
	first := uintptr(unsafe.Pointer(&mem[0]))
	for size, x := range map[int]stored{
		4: {wide: mem}, 2: {half: unsafe.Slice((*uint16)(unsafe.Pointer(&mem[0])), stride*n)},
	} {
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
						asked[int(at-first)+i*step+b] = true
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
