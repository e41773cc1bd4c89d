package pipeline

import (
	"context"

	"golang.org/x/sync/errgroup"

	"pnode/kernels"
	"pnode/kernels/host"
	"pnode/pipeline/model"
)

// piece is a part of a layer's optimizer state that is on the device at a time: n elements of each
// moment from first on, and the ranges that calls update of it.
type piece struct {
	layer, first, n int
	updates         []updateRange
	host            [][]byte // by moment, its memory on the host
}

// pieces cuts ranges into pieces of at most so many elements, each of one layer.
func pieces(all []updateRange, most int) []piece {
	var out []piece
	for _, u := range all {
		for u.n > 0 {
			last := len(out) - 1
			if last < 0 || out[last].layer != u.layer || out[last].n == most {
				out, last = append(out, piece{layer: u.layer, first: u.moments[firstMoment]}), last+1
			}
			at := &out[last]
			head, rest := u.split(min(u.n, most-at.n))
			at.updates, at.n, u = append(at.updates, head), at.n+head.n, rest
		}
	}
	return out
}

// offloadEngine brings the optimizer state of a stage from host memory through the stack's windows on
// the device and back, in order (ZeRO-Offload, Ren et al. 2021). A window is filled as soon as it is
// free: the first pieces of an update are there before its gradient is, and the last ones go back
// while the next step computes. Its two goroutines, one each way, live from start to stop.
type offloadEngine struct {
	pieces   []piece
	windows  [][]kernels.View
	up, down copyQueue
	// Windows that are free, hold their piece, and hold it updated. They follow each other in order,
	// so that a count is enough.
	free, filled, updated chan struct{}
	home                  chan struct{} // the last piece of an update is back
	away                  bool          // home has not been received yet
	next                  int           // window of the next piece to be updated
	group                 *errgroup.Group
	ctx                   context.Context // of group
	cancel                context.CancelFunc
}

// newOffloadEngine returns nil for a stack whose optimizer state is on its device, or that has none.
func newOffloadEngine(d kernels.Device, stack *model.Stack, all []updateRange) (*offloadEngine, error) {
	if !stack.Offloaded() || len(all) == 0 {
		return nil, nil
	}
	f := &offloadEngine{windows: stack.Windows()}
	f.pieces = pieces(all, f.windows[0][firstMoment].Len)
	for i := range f.pieces {
		p := &f.pieces[i]
		for m := range momentVectors { // stays while the stack gets other slots
			bytes, _ := host.Bytes(stack.Moment(p.layer, m).Slice(p.first, p.n))
			p.host = append(p.host, bytes)
		}
	}
	f.windows = f.windows[:min(len(f.windows), len(f.pieces))] // a piece goes back before it comes again
	var err error
	if f.up, err = newCopyQueue(d); err != nil {
		return f, err
	}
	f.down, err = newCopyQueue(d)
	return f, err
}

// start begins to fill the windows with the state in host memory.
func (f *offloadEngine) start() {
	if f == nil {
		return
	}
	n := len(f.windows)
	f.free, f.filled, f.updated, f.home = make(chan struct{}, n), make(chan struct{}, n), make(chan struct{}, n), make(chan struct{}, 1)
	for range n {
		f.free <- struct{}{}
	}
	f.next, f.away = 0, false
	f.ctx, f.cancel = context.WithCancel(context.Background())
	f.group, f.ctx = errgroup.WithContext(f.ctx)
	f.group.Go(func() error {
		return f.carry(&f.up, f.free, func(q kernels.Queue, window kernels.View, kept []byte) { q.Write(window, kept) },
			func(int) { f.filled <- struct{}{} })
	})
	f.group.Go(func() error {
		return f.carry(&f.down, f.updated, func(q kernels.Queue, window kernels.View, kept []byte) { q.Read(kept, window) }, func(k int) {
			if (k+1)%len(f.pieces) == 0 {
				f.home <- struct{}{}
			}
			f.free <- struct{}{}
		})
	})
}

// carry copies one piece after the other, update after update, each when its window is ready, and
// calls done with its number.
func (f *offloadEngine) carry(
	c *copyQueue, ready <-chan struct{}, move func(q kernels.Queue, window kernels.View, kept []byte), done func(k int),
) error {
	for k := 0; ; k++ {
		select {
		case <-ready:
		case <-f.ctx.Done():
			return nil
		}
		p, window := f.pieces[k%len(f.pieces)], f.windows[k%len(f.windows)]
		err := c.run(&transfer{do: func(q kernels.Queue) {
			for i, kept := range p.host {
				move(q, window[i].Slice(0, p.n), kept)
			}
		}})
		if err != nil {
			return err
		}
		done(k)
	}
}

// run calls update for every piece in its window; what that enqueues is done when it returns. The
// last pieces may be on their way back afterwards.
func (f *offloadEngine) run(update func(piece, []kernels.View) error) error {
	if err := f.settle(); err != nil {
		return err
	}
	for _, p := range f.pieces {
		select {
		case <-f.filled:
		case <-f.ctx.Done():
			return f.group.Wait()
		}
		if err := update(p, f.windows[f.next]); err != nil {
			return err
		}
		f.next = (f.next + 1) % len(f.windows)
		f.updated <- struct{}{}
	}
	f.away = true
	return nil
}

// settle blocks until the state is in host memory.
func (f *offloadEngine) settle() error {
	if f == nil || !f.away {
		return nil
	}
	select {
	case <-f.home:
		f.away = false
		return nil
	case <-f.ctx.Done():
		return f.group.Wait()
	}
}

// stop ends the goroutines: state on its way back is lost.
func (f *offloadEngine) stop() {
	if f != nil && f.cancel != nil {
		f.cancel()
		_ = f.group.Wait() // run returned its error, or nobody needs the state
	}
}
