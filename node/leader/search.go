package leader

import "context"

// maxSearches bounds the searches for plans that run at the same time: one of each kind, and one
// that is out of date.
const maxSearches = 5

// spawn runs f on another goroutine, or reports that too many run already. The context ends with the
// leader's duties.
type spawn func(f func(context.Context)) bool

// future is a value that is computed on another goroutine. A nil future has none.
type future[V any] struct {
	done  chan struct{}
	value V
}

// begin has compute run on another goroutine. It returns nil if too many run already.
func begin[V any](on spawn, compute func(context.Context) V) *future[V] {
	f := &future[V]{done: make(chan struct{})}
	started := on(func(ctx context.Context) {
		defer close(f.done)
		f.value = compute(ctx)
	})
	if !started {
		return nil
	}
	return f
}

// get returns the value once it is there. It does not block.
func (f *future[V]) get() (value V, ok bool) {
	if f == nil {
		return value, false
	}
	select {
	case <-f.done:
		return f.value, true
	default:
		return value, false
	}
}
