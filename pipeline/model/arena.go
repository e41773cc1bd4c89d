package model

import (
	"fmt"

	"pnode/kernels"
)

// arena hands out views of buffers, of one unless its device gives no larger ones. Before the
// buffers exist the views name no memory, so that one and the same code first measures and then
// binds.
type arena struct {
	what    string // for errors: `activations`
	dtype   kernels.DType
	most    int // elements of a buffer, but for a view that has more; 0: no such limit
	regions []region
	at      int // the region from which views are taken
	// apart gives each view a region of its own, so that another stack can take it over; next names it, and packed has the
	// next view share the region of the one before.
	apart, packed bool
	next          part
	// A bounded arena gives what is in its regions and no more; short reports that more was asked for.
	bounded, short bool
}

// region is a buffer.
type region struct {
	buf  kernels.Buffer
	used int
	peak int  // most elements that were used at a time
	part part // what an apart region holds
}

// part names a vector of a layer. A tied one of the head has the embedding's behind it.
type part struct {
	layer, vector int
	tied          bool
}

// arenaAlign is in bytes: a cache line and the widest vector.
const arenaAlign = 64

// arenaMax elements is more than any device has; sums saturate there.
const arenaMax = 1 << 46

// limit makes buffers of d no larger than it gives them.
func (a *arena) limit(d kernels.Device) {
	if p, ok := d.(kernels.Portioned); ok {
		a.most = int(p.MaxBufferBytes()) / a.dtype.SizeBytes()
	}
}

// again hands the memory of arenas of one type out once more, for what is never in use beside
// them.
func again(arenas ...*arena) arena {
	out := arena{what: arenas[0].what, dtype: arenas[0].dtype, bounded: true}
	for _, a := range arenas {
		for _, r := range a.regions {
			out.regions = append(out.regions, region{buf: r.buf, peak: r.peak})
		}
	}
	return out
}

// region gives the one for the next n elements, which are not parted: of a bounded arena the first
// that has room for them.
func (a *arena) region(n int) *region {
	if a.bounded {
		for i := range a.regions {
			if r := &a.regions[i]; n <= r.peak-r.used {
				return r
			}
		}
		a.short = true
		return &region{}
	}
	if len(a.regions) > 0 && a.regions[a.at].used > 0 {
		if a.most > 0 && n > a.most-a.regions[a.at].used || a.apart && !a.packed && n > 0 {
			a.at++
		}
	}
	if a.at == len(a.regions) {
		a.regions = append(a.regions, region{})
	}
	if n > 0 && !a.packed {
		a.regions[a.at].part = a.next
	}
	a.packed = false
	return &a.regions[a.at]
}

// take gives the next n elements, and the one after it an aligned place.
func (a *arena) take(n int) kernels.View {
	r := a.region(n)
	v := kernels.View{Buf: r.buf, Off: r.used, Len: n}
	align := arenaAlign / a.dtype.SizeBytes()
	r.use((r.used + n + align - 1) / align * align)
	return v
}

// takePacked gives the next n elements and lets the next view, of `behind` elements, begin right
// behind them.
func (a *arena) takePacked(n, behind int) kernels.View {
	r := a.region(n + behind)
	v := kernels.View{Buf: r.buf, Off: r.used, Len: n}
	r.use(r.used + n)
	r.part.tied, a.packed = true, true
	return v
}

func (r *region) use(elements int) {
	r.used = min(elements, arenaMax)
	r.peak = max(r.peak, r.used)
}

// rewind gives up everything taken: later views share its memory.
func (a *arena) rewind() {
	a.at = 0
	for i := range a.regions {
		a.regions[i].used = 0
	}
}

// usedBytes is the size of everything taken.
func (a *arena) usedBytes() int64 { return a.sum(func(r region) int { return r.used }) }

// sizeBytes returns how much bind allocates.
func (a *arena) sizeBytes() int64 { return a.sum(func(r region) int { return r.peak }) }

func (a *arena) sum(of func(region) int) int64 {
	elements := 0
	for _, r := range a.regions {
		elements = min(elements+of(r), arenaMax)
	}
	return int64(elements) * int64(a.dtype.SizeBytes())
}

// allocator gives buffers: a device, or the host's memory.
type allocator interface {
	Alloc(dtype kernels.DType, count int) (kernels.Buffer, error)
}

// bind allocates what was measured and starts over.
func (a *arena) bind(from allocator) error {
	if a.sizeBytes() == arenaMax*int64(a.dtype.SizeBytes()) {
		return fmt.Errorf("%s need more than %d bytes: %w", a.what, a.sizeBytes(), kernels.ErrOutOfMemory)
	}
	for i := range a.regions {
		r := &a.regions[i]
		if r.peak == 0 || r.buf != nil {
			continue // nothing is in it, or it was taken over
		}
		buf, err := from.Alloc(a.dtype, r.peak)
		if err != nil {
			bytes := int64(r.peak) * int64(a.dtype.SizeBytes())
			return fmt.Errorf("%s need %d bytes, of them %d in one buffer: %w", a.what, a.sizeBytes(), bytes, err)
		}
		r.buf = buf
	}
	a.rewind()
	return nil
}

func (a *arena) free() { a.freeBut(func(region) bool { return false }) }

// freeBut frees the regions that are not to be kept.
func (a *arena) freeBut(keep func(region) bool) {
	for i := range a.regions {
		if r := &a.regions[i]; r.buf != nil && !keep(*r) {
			r.buf.Free()
			r.buf = nil
		}
	}
}
