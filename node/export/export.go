package export

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"pnode/node/api"
)

const (
	// mostQueued bounds the rows that wait for a sink.
	mostQueued = 4096
	// batchEvery is the least time between two requests to a server, retryEvery between two tries of a sink that failed.
	batchEvery = time.Second
	retryEvery = 5 * time.Second
	// closeTime bounds the end of all sinks. The last cutTime of it is for those whose requests are cut.
	closeTime = 10 * time.Second
	cutTime   = time.Second
)

// Options say where numbers go; what is empty is not wanted.
type Options struct {
	// TensorBoard is a folder for event files, CSV a file.
	TensorBoard, CSV string
	// MLflow is the URL of a tracking server.
	MLflow string
	// Dir is the run's folder, which keeps for the next start which MLflow run and which files are the run's.
	Dir string
	// Settings are the run's, for MLflow's parameters.
	Settings map[string]string
	// Warn tells people of what failed.
	Warn func(text string)
}

// sink takes rows. Its methods are called from one goroutine.
type sink interface {
	// batches reports whether rows are collected for batchEvery, as for a server; else each is written at once.
	batches() bool
	// name is how the user asked for it, for warnings.
	name() string
	// take keeps a row to be written.
	take(r Row)
	// flush writes what was taken. After an error that is kept, as far as there is room.
	flush(ctx context.Context) error
	// close ends it; nothing waits, or has to.
	close(ctx context.Context) error
}

// Exports hands events to sinks. Its methods may be called concurrently; nil has none.
type Exports struct {
	queues []*queue
	stop   context.CancelFunc
	work   sync.WaitGroup
	closed sync.Once
}

// Open opens what is wanted. The error names the setting.
func Open(o Options) (*Exports, error) {
	var sinks []sink
	var files *own
	if o.TensorBoard != "" || o.CSV != "" {
		var err error
		if files, err = ownIn(o.Dir); err != nil {
			return nil, err
		}
	}
	fail := func(err error) (*Exports, error) {
		for _, s := range sinks {
			err = errors.Join(err, s.close(context.Background()))
		}
		return nil, err
	}
	if o.TensorBoard != "" {
		s, err := newBoard(o.TensorBoard, files, time.Now())
		if err != nil {
			return fail(err)
		}
		sinks = append(sinks, s)
	}
	if o.CSV != "" {
		s, err := newTable(o.CSV, files)
		if err != nil {
			return fail(err)
		}
		sinks = append(sinks, s)
	}
	if o.MLflow != "" {
		s, err := newTracked(o)
		if err != nil {
			return fail(err)
		}
		sinks = append(sinks, s)
	}
	return serve(sinks, o.Warn), nil
}

// serve starts a goroutine for each sink.
func serve(sinks []sink, warn func(string)) *Exports {
	ctx, cancel := context.WithCancel(context.Background())
	e := &Exports{stop: cancel}
	for _, s := range sinks {
		q := &queue{sink: s, warn: warn, rows: make(chan Row, mostQueued)}
		e.queues = append(e.queues, q)
		e.work.Go(func() { q.run(ctx) })
	}
	return e
}

// Event queues an event for each sink that has a use for it, and never waits.
func (e *Exports) Event(event api.Event) {
	if e == nil || event.Kind != api.KindDone && len(Scalars(event)) == 0 {
		return
	}
	row := Row{Event: event, Time: time.Now()}
	for _, q := range e.queues {
		select {
		case q.rows <- row:
		default:
			q.lost.Add(1)
		}
	}
}

// Close writes what is queued, within closeTime, and closes all. No Event may follow. A file that takes nothing, as a pipe that nobody reads
// or one of a server that is away, is left to the end of the process: its writes cannot be cut.
func (e *Exports) Close() {
	if e == nil {
		return
	}
	e.closed.Do(func() {
		defer e.stop()
		cut, late := time.AfterFunc(closeTime-cutTime, e.stop), time.NewTimer(closeTime)
		defer cut.Stop()
		defer late.Stop()
		for _, q := range e.queues {
			close(q.rows)
		}
		ended := make(chan struct{})
		go func() {
			e.work.Wait()
			close(ended)
		}()
		select {
		case <-ended:
		case <-late.C:
			for _, q := range e.queues {
				if !q.ended.Load() {
					q.warn(q.sink.name() + ": it takes nothing, and what was not written is lost")
				}
			}
		}
	})
}

// queue keeps rows until its sink has them.
type queue struct {
	sink   sink
	warn   func(string)
	rows   chan Row
	lost   atomic.Int64 // rows that found no room
	ended  atomic.Bool  // there is nothing to be done any more
	failed bool         // the last write
	tried  time.Time    // when that was
}

// run hands rows to the sink until there come no more, and closes it. The end of ctx cuts what takes too long.
func (q *queue) run(ctx context.Context) {
	batches, tick := q.sink.batches(), time.NewTicker(batchEvery)
	defer tick.Stop()
	defer q.ended.Store(true)
	for open := true; open; {
		select {
		case r, ok := <-q.rows:
			if open = ok; !ok {
				break
			}
			q.sink.take(r)
			for more := true; more; { // what waits already goes in one write
				select {
				case r, ok := <-q.rows:
					if more, open = ok, ok; ok {
						q.sink.take(r)
					}
				default:
					more = false
				}
			}
			if !batches && !q.failed { // else when it is time
				q.flush(ctx)
			}
		case now := <-tick.C:
			if batches && !q.failed || q.failed && now.Sub(q.tried) >= retryEvery {
				q.flush(ctx)
			}
		}
	}
	if q.flush(ctx); q.failed {
		q.warn(q.sink.name() + ": what was not written is lost")
	}
	if err := q.sink.close(ctx); err != nil && !q.failed {
		q.warn(fmt.Sprintf("%s: %v", q.sink.name(), err))
	}
	if n := q.lost.Load(); n > 0 {
		q.warn(fmt.Sprintf("%s lacks %d rows, for which it was too slow", q.sink.name(), n))
	}
}

// flush has the sink write, and warns once of each time that it cannot.
func (q *queue) flush(ctx context.Context) {
	err := q.sink.flush(ctx)
	switch {
	case err != nil && !q.failed:
		q.warn(fmt.Sprintf("%s: %v; the run goes on, and numbers wait until they can be written", q.sink.name(), err))
	case err == nil && q.failed:
		q.warn(q.sink.name() + ": numbers are written again")
	}
	q.failed, q.tried = err != nil, time.Now()
}
