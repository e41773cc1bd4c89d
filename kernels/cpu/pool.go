package cpu

import (
	"runtime"
	"sync"
	"sync/atomic"

	"pnode/kernels/host"
)

// pool runs parallel loops on a fixed set of workers. Its methods are called by one
// goroutine at a time (Device.mu), which works along as worker 0.
type pool struct {
	workers []*worker
	shared  []float32 // scratch that all workers of one call see
	ended   sync.WaitGroup

	// ticket says how many tasks of which loop are left to take: loop<<32 | tasks. Whoever
	// takes one by lowering it may read tasks and do: the loop cannot end before that task has.
	ticket  atomic.Uint64
	tasks   int // of the loop
	do      func(w *worker, task int)
	pending atomic.Int64 // tasks not yet finished
	closed  atomic.Bool
	caller  parking
}

// worker is one thread's memory. Only the goroutine that runs a task on it touches it,
// and the pool's caller while no task runs.
type worker struct {
	parking
	scratch []float32
	tile    tile
	task    rowTask
	ahead   ahead
}

// spins is how often an idle worker looks for work before it goes to sleep: the calls of
// a training step follow each other within microseconds, while to wake a thread takes tens
// of them. Each look lets other goroutines run.
const spins = 200

// parking lets one goroutine wait for a condition that others bring about: they change
// what it looks at, then call wake.
type parking struct {
	asleep atomic.Bool
	token  chan struct{} // capacity 1; a stale token costs one more look
}

func newParking() parking { return parking{token: make(chan struct{}, 1)} }

// wait returns when ready does not tell false.
func (p *parking) wait(ready func() bool) {
	for {
		for range spins {
			if ready() {
				return
			}
			runtime.Gosched()
		}
		p.asleep.Store(true)
		if !ready() {
			<-p.token
		}
		p.asleep.Store(false)
	}
}

func (p *parking) wake() {
	if p.asleep.Swap(false) {
		select {
		case p.token <- struct{}{}:
		default:
		}
	}
}

func newPool(threads int) *pool {
	p := &pool{caller: newParking()}
	for i := range threads {
		w := &worker{parking: newParking()}
		p.workers = append(p.workers, w)
		if i > 0 {
			p.ended.Go(func() {
				ready := func() bool { return uint32(p.ticket.Load()) > 0 || p.closed.Load() }
				for !p.closed.Load() {
					p.work(w)
					w.wait(ready)
				}
			})
		}
	}
	return p
}

// run calls do once for each task in [0, tasks), each on any worker, and waits for all. They are
// taken in ascending order.
func (p *pool) run(tasks int, do func(w *worker, task int)) {
	if tasks <= 1 || len(p.workers) == 1 {
		for t := range tasks {
			do(p.workers[0], t)
		}
		return
	}
	p.tasks, p.do = tasks, do
	p.pending.Store(int64(tasks))
	loop := p.ticket.Load()>>32 + 1
	p.ticket.Store(loop<<32 | uint64(tasks))
	for _, w := range p.workers[1:min(len(p.workers), tasks)] {
		w.wake()
	}
	p.work(p.workers[0])
	p.caller.wait(p.finished)
	p.do = nil
}

// after is the task of a loop that a worker probably takes after this one; it may not exist.
func (p *pool) after(task int) int { return task + len(p.workers) }

func (p *pool) finished() bool { return p.pending.Load() == 0 }

// work takes tasks until none is left. Whoever finishes the last one wakes the caller.
func (p *pool) work(w *worker) {
	for {
		t := p.ticket.Load()
		left := uint32(t)
		if left == 0 {
			return
		}
		if !p.ticket.CompareAndSwap(t, t-1) {
			continue
		}
		p.do(w, p.tasks-int(left))
		if p.pending.Add(-1) == 0 {
			p.caller.wake()
		}
	}
}

// reserve makes sure that each worker has n floats of scratch.
func (p *pool) reserve(n int) error {
	for _, w := range p.workers {
		if err := grow(&w.scratch, n); err != nil {
			return err
		}
	}
	return nil
}

// common is scratch of n floats for the whole call, with arbitrary content.
func (p *pool) common(n int) ([]float32, error) {
	if err := grow(&p.shared, n); err != nil {
		return nil, err
	}
	return p.shared[:n], nil
}

func grow(mem *[]float32, n int) error {
	if len(*mem) >= n {
		return nil
	}
	fresh, err := host.Map(n + n/4)
	if err != nil {
		return err
	}
	host.Unmap(*mem)
	*mem = fresh
	return nil
}

// close ends the workers and frees all scratch.
func (p *pool) close() {
	p.closed.Store(true)
	for _, w := range p.workers {
		w.wake()
	}
	p.ended.Wait()
	for _, w := range p.workers {
		host.Unmap(w.scratch)
	}
	host.Unmap(p.shared)
}

// cutter hands out pieces of a worker's reserved scratch. A dry one only adds up what would
// be used, so that the code that cuts says what to reserve.
type cutter struct {
	rest []float32
	used int
	dry  bool
}

// take is the next n floats, rounded up so that the piece after them is aligned to 64
// bytes again. Callers reserve scratchSize of each piece.
func (c *cutter) take(n int) []float32 {
	size := scratchSize(n)
	c.used += size
	if c.dry {
		return nil
	}
	piece := c.rest[:n:size]
	c.rest = c.rest[size:]
	return piece
}

// scratchSize is the floats that a piece of n floats uses up.
func scratchSize(n int) int { return roundUp(n, 16) }

func roundUp(n, unit int) int { return (n + unit - 1) / unit * unit }

func blocks(n, size int) int { return (n + size - 1) / size }
