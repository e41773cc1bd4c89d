package consensus

import (
	"runtime"

	"github.com/hashicorp/raft"
)

// guard keeps a store that cannot be written from raft. Raft panics, and with it the whole
// process, when it cannot save its term, and comes to that point after other failures too.
// So the first failure is told, and the goroutine of raft it happened on ends there: as with
// a power cut, nothing follows from what was not stored. Raft writes on its main loop, its
// snapshot loop and where it answers heartbeats; their deferred functions run and answer
// what is owed, the rest of raft is shut down by whoever is told. Reads go by unguarded:
// the loops that send the log to others read it too, and need the error to end.
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
