package checkpoint

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
)

const (
	memTableBytes = 8 << 20
	valueLogBytes = 16 << 20
	// indexBytesAtOpen is what Badger may write while it opens: the replayed tables of the
	// last process and a compaction.
	indexBytesAtOpen = 2 * memTableBytes
	// flushBytesAtClose is what it flushes when it closes: the table being filled and one
	// that waits.
	flushBytesAtClose = 2 * memTableBytes
	// MaxKeyBytes and MaxValueBytes bound one entry of a bucket.
	MaxKeyBytes   = 1 << 10
	MaxValueBytes = 8 << 20
	// MaxBatchBytes and MaxBatchOps are a batch that always fits in one transaction.
	MaxBatchBytes = 1 << 20
	MaxBatchOps   = 4096
	// maxBucketName bounds what each key of a batch carries besides.
	maxBucketName = 16
)

// The first byte of an index key says what it is.
const (
	manifestKeys = 'M' // + step, big-endian
	pinKeys      = 'P' // + name
	bucketKeys   = 'B' // + name, 0, key
)

// Op is one entry of an atomic batch: Value is put under Key, or Key is deleted.
type Op struct {
	Key    []byte
	Value  []byte
	Delete bool
}

// index is Badger with a checksum of its own on every value: Badger's verification gives
// an empty value and no error for a flipped byte, and without it gives the flipped byte.
type index struct{ db *badger.DB }

func openIndex(dir string, readOnly bool, log *slog.Logger) (*index, error) {
	o := badger.DefaultOptions(dir).
		WithSyncWrites(true).
		WithDetectConflicts(false). // each write is one blind batch
		WithMemTableSize(memTableBytes).
		WithNumMemtables(2).
		WithNumCompactors(2).
		WithValueLogFileSize(valueLogBytes).
		WithCompression(options.None).
		WithBlockCacheSize(0). // tables are mapped, the page cache serves them
		WithChecksumVerificationMode(options.OnTableRead).
		WithCompactL0OnClose(true). // or collectValueLog would never learn what is dead
		WithMetricsEnabled(false).
		WithReadOnly(readOnly).
		WithLogger(badgerLog{log})
	db, err := badger.Open(o)
	if err != nil {
		damaged := func(sign string) bool { return strings.Contains(err.Error(), sign) }
		if slices.ContainsFunc(damageSigns, damaged) {
			err = fmt.Errorf("%w: %w; join the run again from a fresh folder, "+
				"or restore this one from a copy", ErrCorrupt, err)
		}
		return nil, fmt.Errorf("index: %w", err)
	}
	return &index{db}, nil
}

// damageSigns mark errors of badger.Open about bytes that changed or files that are gone: Badger has
// no sentinels for them.
var damageSigns = []string{"checksum", "bad magic", "corrupted", "does not exist for table", "unsupported version"}

// indexExists fails with ErrNoStore where Badger would begin a new, empty index.
func indexExists(dir string) error {
	st, err := os.Stat(filepath.Join(dir, badger.ManifestFilename))
	if err == nil && st.Size() > 0 {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return fmt.Errorf("%w: index/%s is missing or empty; restore the folder from a copy, "+
		"or join the run again from a fresh folder", ErrNoStore, badger.ManifestFilename)
}

// get gives a copy of the value, or ErrNotFound.
func (x *index) get(key []byte) (value []byte, err error) {
	err = x.db.View(func(t *badger.Txn) error {
		item, err := t.Get(key)
		if errors.Is(err, badger.ErrKeyNotFound) {
			return ErrNotFound
		}
		if err != nil {
			return err
		}
		value, err = unsealItem(item)
		return err
	})
	return value, err
}

// tableBytes is the size of all tables.
func (x *index) tableBytes() int64 {
	var sum int64
	for _, t := range x.db.Tables() {
		sum += int64(t.OnDiskSize)
	}
	return sum
}

// write applies all or nothing and is durable when it returns.
func (x *index) write(ops []Op) error {
	if len(ops) == 0 {
		return nil
	}
	t := x.db.NewTransaction(true)
	defer t.Discard()
	for _, op := range ops {
		var err error
		if op.Delete {
			err = t.Delete(op.Key)
		} else {
			err = t.Set(op.Key, seal(op.Key, op.Value))
		}
		if errors.Is(err, badger.ErrTxnTooBig) {
			return fmt.Errorf("%w: %d operations, %d bytes; up to %d and %d always fit",
				ErrTooLarge, len(ops), opBytes(ops), MaxBatchOps, MaxBatchBytes)
		}
		if err != nil {
			return err
		}
	}
	return t.Commit()
}

// walk visits the keys that begin with prefix in order, from the given key on (nil: from
// the end where the walk begins), until fn returns false or an error. Values are read on
// demand; key is valid during the call.
func (x *index) walk(prefix, from []byte, reverse bool, fn func(key []byte, value func() ([]byte, error)) (bool, error)) error {
	return x.db.View(func(t *badger.Txn) error {
		o := badger.DefaultIteratorOptions
		o.PrefetchValues = false
		o.Reverse = reverse
		it := t.NewIterator(o)
		defer it.Close()
		if from == nil {
			if from = prefix; reverse {
				from = successor(prefix)
			}
		}
		it.Seek(from)
		if reverse && !it.ValidForPrefix(prefix) && it.Valid() {
			it.Next() // the successor of the prefix is itself a key
		}
		for ; it.ValidForPrefix(prefix); it.Next() {
			item := it.Item()
			more, err := fn(item.Key(), func() ([]byte, error) { return unsealItem(item) })
			if err != nil || !more {
				return err
			}
		}
		return nil
	})
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

// collectValueLog gives back value log files of which half or more is dead. Only values
// of 1 MiB and more live there: manifests of 15,000 chunks (63 GB). Badger counts what is
// dead when it compacts, which so small an index hardly does before it is closed: it is
// the first sweep after a restart that gives most of it back.
func (x *index) collectValueLog() error {
	for {
		err := x.db.RunValueLogGC(0.5)
		if errors.Is(err, badger.ErrNoRewrite) || errors.Is(err, badger.ErrRejected) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func opBytes(ops []Op) int64 {
	var n int64
	for _, op := range ops {
		n += int64(len(op.Key) + len(op.Value))
	}
	return n
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
