package cpu

import (
	"sync"
	"sync/atomic"
)

// pool runs tasks on a fixed set of workers. Its methods are called by one goroutine at
// a time (Device.mu), which works along as worker 0.
type pool struct {
	workers []*worker
	shared  []float32 // scratch that all workers of one call see
	ended   sync.WaitGroup
}

// worker is one thread's memory. Only the goroutine that runs a task on it touches it,
// and the pool's caller while no task runs.
type worker struct {
	jobs    chan *job // capacity 1: a worker that lags behind misses jobs, which is harmless
	scratch []float32
	tile    tile
}

// job is one parallel loop over tasks [0, tasks).
type job struct {
	do      func(w *worker, task int)
	tasks   int64
	next    atomic.Int64 // first task nobody took
	pending atomic.Int64 // tasks not yet finished
	done    chan struct{}
}

func newPool(threads int) *pool {
	p := &pool{}
	for i := range threads {
		w := &worker{jobs: make(chan *job, 1)}
		p.workers = append(p.workers, w)
		if i > 0 {
			p.ended.Go(func() {
				for j := range w.jobs {
					j.work(w)
				}
			})
		}
	}
	return p
}

// run calls do once for each task in [0, tasks), each on any worker, and waits for all.
func (p *pool) run(tasks int, do func(w *worker, task int)) {
	if tasks <= 1 || len(p.workers) == 1 {
		for t := range tasks {
			do(p.workers[0], t)
		}
		return
	}
	j := &job{do: do, tasks: int64(tasks), done: make(chan struct{}, 1)}
	j.pending.Store(int64(tasks))
	for _, w := range p.workers[1:min(len(p.workers), tasks)] {
		select {
		case w.jobs <- j:
		default:
		}
	}
	j.work(p.workers[0])
	<-j.done
}

// work takes tasks until none is left. Whoever finishes the last one says so.
func (j *job) work(w *worker) {
	for {
		t := j.next.Add(1) - 1
		if t >= j.tasks {
			return
		}
		j.do(w, int(t))
		if j.pending.Add(-1) == 0 {
			j.done <- struct{}{}
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
	fresh, err := allocFloats(n + n/4)
	if err != nil {
		return err
	}
	freeFloats(*mem)
	*mem = fresh
	return nil
}

// close ends the workers and frees all scratch.
func (p *pool) close() {
	for _, w := range p.workers {
		close(w.jobs)
	}
	p.ended.Wait()
	for _, w := range p.workers {
		freeFloats(w.scratch)
	}
	freeFloats(p.shared)
}

// cutter hands out pieces of a worker's reserved scratch.
type cutter struct{ rest []float32 }

// take is the next n floats, rounded up so that the piece after them is aligned to 64
// bytes again. Callers reserve scratchSize of each piece.
func (c *cutter) take(n int) []float32 {
	size := scratchSize(n)
	piece := c.rest[:n:size]
	c.rest = c.rest[size:]
	return piece
}

// scratchSize is the floats that a piece of n floats uses up.
func scratchSize(n int) int { return roundUp(n, 16) }

func roundUp(n, unit int) int { return (n + unit - 1) / unit * unit }

func blocks(n, size int) int { return (n + size - 1) / size }
