package consensus

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// memoryKV is the twin of a durable store: it outlives the node that uses it.
type memoryKV struct {
	mu    sync.Mutex
	pairs map[string][]byte
	// broken makes every write fail, and damaged every read of a log record.
	broken, damaged bool
	// hole, unless 0, is a log record whose read fails.
	hole uint64
	// slow is how long a write takes.
	slow   time.Duration
	writes int
}

func newMemoryKV() *memoryKV { return &memoryKV{pairs: map[string][]byte{}} }

// breakDown makes the writes fail from now on.
func (m *memoryKV) breakDown() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.broken = true
}

// slowDown makes each write take so long from now on.
func (m *memoryKV) slowDown(takes time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.slow = takes
}

// puncture makes reads of one log record fail.
func (m *memoryKV) puncture(index uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hole = index
}

// damage makes reads of the log fail, or succeed again.
func (m *memoryKV) damage(now bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.damaged = now
}

func (m *memoryKV) Get(key []byte) ([]byte, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.pairs[string(key)]
	if index, log := logIndex(key); log && (m.damaged || index == m.hole) {
		return nil, false, errors.New("damaged block")
	}
	return slices.Clone(v), ok, nil
}

func (m *memoryKV) Write(changes []Change) error {
	m.mu.Lock()
	slow := m.slow
	m.mu.Unlock()
	time.Sleep(slow)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes++
	if m.broken {
		return errors.New("no space left")
	}
	for _, c := range changes {
		if c.Delete {
			delete(m.pairs, string(c.Key))
		} else {
			m.pairs[string(c.Key)] = slices.Clone(c.Value)
		}
	}
	return nil
}

func (m *memoryKV) Scan(from []byte, reverse bool, visit func(key, value []byte) bool) error {
	m.mu.Lock()
	keys := slices.Sorted(maps.Keys(m.pairs))
	m.mu.Unlock()
	if reverse {
		slices.Reverse(keys)
	}
	for _, k := range keys {
		order := bytes.Compare([]byte(k), from)
		if reverse && order > 0 || !reverse && order < 0 {
			continue
		}
		v, found, err := m.Get([]byte(k))
		if err != nil || found && !visit([]byte(k), v) {
			return err
		}
	}
	return nil
}
