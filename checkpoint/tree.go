package checkpoint

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
)

const (
	memTableBytes = 8 << 20
	valueLogBytes = 16 << 20
	// flushBytes is what Badger may write at once when it opens or closes: the table being filled, one that waits, and
	// a compaction.
	flushBytes = 2 * memTableBytes
	// closeTime bounds the end of Badger, which tries again for ever to write what it cannot.
	closeTime = 10 * time.Second
)

// tree is Badger in a folder of its own: it finds and walks what the index holds. It is made again from the journal when
// anything is wrong with it, so it does not sync. Each value carries a checksum of its own: Badger's verification gives an empty
// value and no error for a flipped byte, and without it gives the flipped byte.
type tree struct{ db *badger.DB }

func openTree(dir string, log *slog.Logger) (t *tree, err error) {
	o := badger.DefaultOptions(dir).
		WithDetectConflicts(false). // each write is one blind batch
		WithMemTableSize(memTableBytes).
		WithNumMemtables(2).
		WithNumCompactors(2).
		WithValueLogFileSize(valueLogBytes).
		WithCompression(options.None).
		WithBlockCacheSize(0). // tables are mapped, the page cache serves them
		WithChecksumVerificationMode(options.OnTableAndBlockRead).
		WithBypassLockGuard(true). // the store is locked
		WithMetricsEnabled(false).
		WithLogger(badgerLog{log})
	err = guarded(func() error {
		db, err := badger.Open(o)
		t = &tree{db}
		return err
	})
	return t, err
}

// guarded runs f. What Badger panics with, and a fault where a file that it has mapped was cut, is an error.
func guarded(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("badger: %v", r)
		}
	}()
	return f()
}

// close ends Badger. After an error it may go on writing.
func (t *tree) close() error {
	done := make(chan error, 1)
	go func() { done <- guarded(t.db.Close) }()
	limit := time.NewTimer(closeTime)
	defer limit.Stop()
	select {
	case err := <-done:
		return err
	case <-limit.C:
		return fmt.Errorf("badger did not end within %v", closeTime)
	}
}

// get returns a copy of the value, or ErrNotFound.
func (t *tree) get(key []byte) (value []byte, err error) {
	err = guarded(func() error {
		return t.db.View(func(txn *badger.Txn) error {
			item, err := txn.Get(key)
			if errors.Is(err, badger.ErrKeyNotFound) {
				return ErrNotFound
			}
			if err == nil {
				value, err = unsealItem(item)
			}
			return err
		})
	})
	return value, err
}

// bytes is the size of all tables.
func (t *tree) bytes() int64 {
	var sum int64
	for _, table := range t.db.Tables() {
		sum += int64(table.OnDiskSize)
	}
	return sum
}

// write applies a batch in one transaction, or in several where it is too large for one.
func (t *tree) write(ops []Op) error {
	return guarded(func() error {
		txn := t.db.NewTransaction(true)
		defer txn.Discard()
		for _, op := range ops {
			var err error
			if op.Delete {
				err = txn.Delete(op.Key)
			} else {
				err = txn.Set(op.Key, seal(op.Key, op.Value))
			}
			if errors.Is(err, badger.ErrTxnTooBig) {
				return t.fill(ops)
			}
			if err != nil {
				return err
			}
		}
		return txn.Commit()
	})
}

// fill writes a batch of any size.
func (t *tree) fill(ops []Op) error {
	return guarded(func() error {
		batch := t.db.NewWriteBatch()
		defer batch.Cancel()
		for _, op := range ops {
			var err error
			if op.Delete {
				err = batch.Delete(op.Key)
			} else {
				err = batch.Set(op.Key, seal(op.Key, op.Value))
			}
			if err != nil {
				return err
			}
		}
		return batch.Flush()
	})
}

// walk visits the keys that begin with prefix in order, from the given key on (nil: from
// the end where the walk begins), until visit returns false. visit owns key and value, and may use the tree.
func (t *tree) walk(prefix, from []byte, reverse bool, visit func(key, value []byte) bool) error {
	o := badger.DefaultIteratorOptions
	o.PrefetchValues = false
	o.Reverse = reverse
	var txn *badger.Txn
	var it *badger.Iterator
	var key, value []byte // nil at the end
	begin := func() error {
		txn = t.db.NewTransaction(false)
		it = txn.NewIterator(o)
		if from == nil {
			if from = prefix; reverse {
				from = successor(prefix)
			}
		}
		it.Seek(from)
		if reverse && !it.ValidForPrefix(prefix) && it.Valid() {
			it.Next() // the successor of the prefix is itself a key
		}
		return nil
	}
	read := func() (err error) {
		if key = nil; it.ValidForPrefix(prefix) {
			key = it.Item().KeyCopy(nil)
			value, err = unsealItem(it.Item())
		}
		return err
	}
	next := func() error { it.Next(); return nil }
	end := func() error { it.Close(); txn.Discard(); return nil }

	err := guarded(begin)
	if err == nil {
		err = guarded(read)
	}
	for err == nil && key != nil && visit(key, value) {
		if err = guarded(next); err == nil {
			err = guarded(read)
		}
	}
	if it != nil {
		err = errors.Join(err, guarded(end))
	}
	return err
}

// successor is the least key greater than every key with this prefix; a prefix here never
// consists of 0xff alone.
func successor(prefix []byte) []byte {
	n := len(prefix)
	for prefix[n-1] == 0xff {
		n--
	}
	s := bytes.Clone(prefix[:n])
	s[n-1]++
	return s
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum covers the key too, so that a value never counts under another key.
func checksum(key, value []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, value)
}

// seal appends the checksum of key and value to a copy of value.
func seal(key, value []byte) []byte {
	sealed := append(make([]byte, 0, len(value)+crc32.Size), value...)
	return binary.LittleEndian.AppendUint32(sealed, checksum(key, value))
}

// unseal checks and cuts off the checksum. The result aliases sealed.
func unseal(key, sealed []byte) ([]byte, error) {
	n := len(sealed) - crc32.Size
	if n < 0 || binary.LittleEndian.Uint32(sealed[n:]) != checksum(key, sealed[:n]) {
		return nil, fmt.Errorf("%w: index value of key %q", ErrCorrupt, key)
	}
	return sealed[:n:n], nil
}

func unsealItem(item *badger.Item) ([]byte, error) {
	sealed, err := item.ValueCopy(nil)
	if err != nil {
		return nil, err
	}
	return unseal(item.Key(), sealed)
}

// badgerLog passes Badger's messages on; its information is only of use for debugging.
type badgerLog struct{ log *slog.Logger }

func (l badgerLog) Errorf(f string, a ...any)   { l.log.Error(message(f, a)) }
func (l badgerLog) Warningf(f string, a ...any) { l.log.Warn(message(f, a)) }
func (l badgerLog) Infof(f string, a ...any)    { l.log.Debug(message(f, a)) }
func (l badgerLog) Debugf(f string, a ...any)   { l.log.Debug(message(f, a)) }

func message(format string, args []any) string {
	return "badger: " + strings.TrimSpace(fmt.Sprintf(format, args...))
}
