package pipeline

import (
	"bufio"
	"fmt"
	"io"
	"slices"

	"pnode/kernels"
	"pnode/kernels/host"
)

const (
	// transferBytes bounds how much of a layer's state is on the host at a time.
	transferBytes = 1 << 20
	// smallRead is the size up to which reads are gathered.
	smallRead = 1 << 16
)

// viewReader reads the memory of views of 4-byte elements, one after the other.
type viewReader struct {
	queue kernels.Queue // of the reader alone
	views []kernels.View
	check func(elements []byte) error // of what has been read, before anybody sees it
	done  func()                      // called once, at the end
}

// newViewReader calls done when the end of the views has been read. Empty views have nothing to read.
func newViewReader(q kernels.Queue, views []kernels.View, check func([]byte) error, done func()) io.Reader {
	if views = slices.DeleteFunc(slices.Clone(views), func(v kernels.View) bool { return v.Len == 0 }); len(views) == 0 {
		done()
	}
	return bufio.NewReaderSize(&viewReader{queue: q, views: views, check: check, done: done}, smallRead)
}

// Read needs room for at least one element, which the buffer around it gives.
func (r *viewReader) Read(p []byte) (int, error) {
	if len(r.views) == 0 {
		return 0, io.EOF
	}
	v := r.views[0]
	n := min(len(p)/4, v.Len)
	if n == 0 {
		return 0, io.ErrShortBuffer
	}
	host.Read(r.queue, p[:4*n], v.Slice(0, n))
	if err := r.queue.Sync(); err != nil {
		return 0, err
	}
	if err := r.check(p[:4*n]); err != nil {
		return 0, err
	}
	if r.views[0] = v.Slice(n, v.Len-n); n == v.Len {
		r.views = r.views[1:]
	}
	if len(r.views) == 0 {
		r.done()
	}
	return 4 * n, nil
}

// viewWriter writes to the memory of views of 4-byte elements, one after the other, and drops what
// falls into gaps: views without a buffer.
type viewWriter struct {
	queue kernels.Queue
	views []kernels.View
	check func(elements []byte) error // before they are written
	carry []byte                      // between two writes, the beginning of an element
}

func (w *viewWriter) Write(p []byte) (int, error) {
	w.carry = append(w.carry, p...)
	whole := len(w.carry) / 4 * 4
	if err := w.check(w.carry[:whole]); err != nil {
		return 0, err
	}
	if err := w.put(w.carry[:whole]); err != nil {
		return 0, err
	}
	w.carry = append(w.carry[:0], w.carry[whole:]...)
	return len(p), nil
}

// put writes whole elements.
func (w *viewWriter) put(p []byte) error {
	for len(p) > 0 {
		if len(w.views) == 0 {
			return fmt.Errorf("pipeline: %d bytes more than the layer's state has", len(p))
		}
		v := w.views[0]
		n := min(len(p)/4, v.Len)
		if v.Present() {
			host.Write(w.queue, v.Slice(0, n), p[:4*n])
			if err := w.queue.Sync(); err != nil {
				return err
			}
		}
		p = p[4*n:]
		if w.views[0] = v.Slice(n, v.Len-n); n == v.Len {
			w.views = w.views[1:]
		}
	}
	return nil
}

// complete returns an error unless all of the views has been written.
func (w *viewWriter) complete() error {
	left := len(w.views)
	if left > 0 || len(w.carry) > 0 {
		return fmt.Errorf("pipeline: the layer's state ends %d vectors and %d bytes of an element early", left, len(w.carry))
	}
	return nil
}
