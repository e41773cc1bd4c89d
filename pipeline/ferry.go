package pipeline

import (
	"context"

	"golang.org/x/sync/errgroup"

	"pnode/kernels"
	"pnode/kernels/host"
	"pnode/pipeline/model"
)

// piece is a part of a layer's optimizer state that is on the device at a time: n elements of
// each moment from first on, and what of them is updated by a call.
type piece struct {
	layer, first, n int
	patches         []patch
	kept            [][]byte // by moment, the host's memory of it
}

// pieces are patches in pieces of at most so many elements, each of one layer.
func pieces(all []patch, most int) []piece {
	var out []piece
	for _, p := range all {
		for p.n > 0 {
			last := len(out) - 1
			if last < 0 || out[last].layer != p.layer || out[last].n == most {
				out, last = append(out, piece{layer: p.layer, first: p.kept}), last+1
			}
			at := &out[last]
			head, rest := p.split(min(p.n, most-at.n))
			at.patches, at.n, p = append(at.patches, head), at.n+head.n, rest
		}
	}
	return out
}

// ferry brings the optimizer state of a stage, which the host has, through the stack's windows on
// the device and back, in order. A window is filled as soon as it is free: the first pieces of an
// update are there before its gradient is, and the last ones go back while the next step's passes
// run. All but cross, settle, start and stop runs on two goroutines, one each way.
type ferry struct {
	pieces   []piece
	windows  [][]kernels.View
	up, down copier
	// Of windows: free ones, those whose piece has come, and those whose piece is updated. They
	// follow each other, so that a count is enough.
	free, come, updated chan struct{}
	home                chan struct{} // the last piece of an update is back
	away                bool          // it has not been waited for
	next                int           // window of the next piece to be updated
	beside              *errgroup.Group
	ctx                 context.Context // of beside
	cancel              context.CancelFunc
}

// newFerry is nil for a stack whose optimizer state is on its device, or that has none.
func newFerry(d kernels.Device, stack *model.Stack, all []patch) (*ferry, error) {
	if !stack.Offloaded() || len(all) == 0 {
		return nil, nil
	}
	f := &ferry{windows: stack.Windows()}
	f.pieces = pieces(all, f.windows[0][firstMoment].Len)
	for i := range f.pieces {
		f.pieces[i].kept = kept(stack, f.pieces[i])
	}
	f.windows = f.windows[:min(len(f.windows), len(f.pieces))] // a piece goes back before it comes again
	n := len(f.windows)
	f.free, f.come, f.updated, f.home = make(chan struct{}, n), make(chan struct{}, n), make(chan struct{}, n), make(chan struct{}, 1)
	for range n {
		f.free <- struct{}{}
	}
	var err error
	if f.up, err = newCopier(d); err != nil {
		return f, err
	}
	f.down, err = newCopier(d)
	return f, err
}

// start begins to fill the windows: the state is loaded.
func (f *ferry) start() {
	if f == nil {
		return
	}
	f.ctx, f.cancel = context.WithCancel(context.Background()) // stop ends it
	f.beside, f.ctx = errgroup.WithContext(f.ctx)
	f.beside.Go(func() error { return f.bring(f.ctx) })
	f.beside.Go(func() error { return f.takeBack(f.ctx) })
}

// bring fills windows with one piece after the other, update after update.
func (f *ferry) bring(ctx context.Context) error {
	for k := 0; ; k++ {
		select {
		case <-f.free:
		case <-ctx.Done():
			return nil
		}
		p, window := f.pieces[k%len(f.pieces)], f.windows[k%len(f.windows)]
		_, _, err := f.up.do(copied{copy: func(q kernels.Queue) {
			for i, kept := range p.kept {
				q.Write(window[i].Slice(0, p.n), kept)
			}
		}})
		if err != nil {
			return err
		}
		f.come <- struct{}{}
	}
}

// takeBack empties windows that are updated.
func (f *ferry) takeBack(ctx context.Context) error {
	for k := 0; ; k++ {
		select {
		case <-f.updated:
		case <-ctx.Done():
			return nil
		}
		p, window := f.pieces[k%len(f.pieces)], f.windows[k%len(f.windows)]
		_, _, err := f.down.do(copied{copy: func(q kernels.Queue) {
			for i, kept := range p.kept {
				q.Read(kept, window[i].Slice(0, p.n))
			}
		}})
		if err != nil {
			return err
		}
		if (k+1)%len(f.pieces) == 0 {
			f.home <- struct{}{}
		}
		f.free <- struct{}{}
	}
}

// kept is by moment the memory of a piece, which stays while the stack gets other slots.
func kept(stack *model.Stack, p piece) [][]byte {
	var all [][]byte
	for _, m := range moments(stack, p.layer) {
		bytes, _ := host.Bytes(m.Slice(p.first, p.n))
		all = append(all, bytes)
	}
	return all
}

// cross calls update for every piece in its window; what it enqueues is done when it returns. The
// last pieces may be on their way back then.
func (f *ferry) cross(update func(piece, []kernels.View) error) error {
	if err := f.settle(); err != nil {
		return err
	}
	for _, p := range f.pieces {
		select {
		case <-f.come:
		case <-f.ctx.Done():
			return f.beside.Wait()
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

// settle waits until the state is in the host's memory.
func (f *ferry) settle() error {
	if f == nil || !f.away {
		return nil
	}
	select {
	case <-f.home:
		f.away = false
		return nil
	case <-f.ctx.Done():
		return f.beside.Wait()
	}
}

// stop ends what runs beside: what is on its way back stays away.
func (f *ferry) stop() {
	if f != nil && f.cancel != nil {
		f.cancel()
		_ = f.beside.Wait() // its error came out of cross, or nobody needs the state
	}
}

// copiers are those of its own.
func (f *ferry) copiers() []*copier {
	if f == nil {
		return nil
	}
	return []*copier{&f.up, &f.down}
}
