package consensus

import (
	"errors"
	"runtime"
	"slices"

	"github.com/hashicorp/raft"
)

// guard keeps a store that cannot be written from raft. Raft panics, and with it the whole
// process, when it cannot save its term, and comes to that point after other failures too.
// So the first failure is told, and the goroutine of raft it happened on ends there: as with
// a power cut, nothing follows from what was not stored. Raft writes on its main loop, its
// snapshot loop and where it answers heartbeats; their deferred functions run and answer
// what is owed, the rest of raft is shut down by whoever is told. A record that cannot be read
// is told too, and ends the goroutine where raft would panic over it; the loops that send the
// log to others read it as well, and need the error to end.
type guard struct {
	logStore
	failed func(error) // must not wait
}

var (
	_ raft.LogStore    = guard{}
	_ raft.StableStore = guard{}
)

// check returns only when a write was done.
func (g guard) check(err error) error {
	if err != nil {
		g.failed(err)
		runtime.Goexit()
	}
	return nil
}

// needing are the functions of raft that panic when they cannot read a log record: one that is
// to be applied, and any at the start.
var needing = []string{"github.com/hashicorp/raft.(*Raft).processLogs", "github.com/hashicorp/raft.NewRaft"}

// GetLog reads one record.
func (g guard) GetLog(index uint64, l *raft.Log) error {
	err := g.logStore.GetLog(index, l)
	if err == nil {
		return nil
	}
	needed := calledBy(needing)
	if needed || !errors.Is(err, raft.ErrLogNotFound) { // which a snapshot can take the place of
		g.failed(err)
	}
	if needed {
		runtime.Goexit()
	}
	return err
}

// calledBy tells whether one of the functions is among the callers.
func calledBy(functions []string) bool {
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		frame, more := frames.Next()
		if slices.Contains(functions, frame.Function) {
			return true
		}
		if !more {
			return false
		}
	}
}

// StoreLog appends one record.
func (g guard) StoreLog(l *raft.Log) error { return g.check(g.logStore.StoreLog(l)) }

// StoreLogs appends records.
func (g guard) StoreLogs(logs []*raft.Log) error { return g.check(g.logStore.StoreLogs(logs)) }

// DeleteRange deletes the records from first to last.
func (g guard) DeleteRange(first, last uint64) error {
	return g.check(g.logStore.DeleteRange(first, last))
}

// Set stores a value.
func (g guard) Set(name, value []byte) error { return g.check(g.logStore.Set(name, value)) }

// SetUint64 stores a number.
func (g guard) SetUint64(name []byte, v uint64) error {
	return g.check(g.logStore.SetUint64(name, v))
}
