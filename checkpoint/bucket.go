package checkpoint

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
)

// Bucket is a key-value space of its own in the store's index. Buckets need not be
// created; an empty one takes no room.
type Bucket struct {
	s      *Store
	name   string
	prefix []byte
}

// ScanOptions choose the entries a scan visits. The zero value is all, ascending.
type ScanOptions struct {
	// Prefix that keys must have.
	Prefix []byte
	// From is the first key that may be visited: the least when ascending, the greatest
	// when Reverse; nil starts at the end of the prefix.
	From []byte
	// Reverse visits in descending order of keys.
	Reverse bool
	// Limit bounds the number of entries; 0 is no bound.
	Limit int
}

// Bucket gives the key-value space of this name: 1 to 16 bytes without NUL, or it panics,
// since names are constants of the program.
func (s *Store) Bucket(name string) *Bucket {
	if name == "" || len(name) > maxBucketName || bytes.IndexByte([]byte(name), 0) >= 0 {
		panic(fmt.Sprintf("checkpoint: bucket name %q", name))
	}
	return &Bucket{s: s, name: name, prefix: append([]byte{bucketKeys}, name+"\x00"...)}
}

// Get reads the value of key; ok is false when there is none.
func (b *Bucket) Get(key []byte) (value []byte, ok bool, err error) {
	err = b.s.during("get bucket "+b.name, func() error {
		value, err = b.s.catalog.get(b.key(key))
		return err
	})
	if errors.Is(err, ErrNotFound) {
		return nil, false, nil
	}
	return value, err == nil, err
}

// Write applies the batch in order, all of it or nothing, and is durable when it returns.
// Batches up to MaxBatchOps and MaxBatchBytes always fit; others may give ErrTooLarge.
func (b *Bucket) Write(batch []Op) error {
	return b.s.during("write bucket "+b.name, func() error {
		ops := make([]Op, len(batch))
		for i, op := range batch {
			if len(op.Key) > MaxKeyBytes || len(op.Value) > MaxValueBytes {
				return fmt.Errorf("%w: key of %d bytes, value of %d; at most %d and %d",
					ErrTooLarge, len(op.Key), len(op.Value), MaxKeyBytes, MaxValueBytes)
			}
			ops[i] = Op{Key: b.key(op.Key), Value: op.Value, Delete: op.Delete}
		}
		return b.s.catalog.apply(ops)
	})
}

// Scan calls fn for the chosen entries as they were when the scan began, until fn returns
// an error, which Scan returns as it is. fn owns key and value and may use the bucket.
func (b *Bucket) Scan(o ScanOptions, fn func(key, value []byte) error) error {
	var from []byte
	if o.From != nil {
		from = b.key(o.From)
	}
	prefix := b.key(o.Prefix)
	if from != nil && !bytes.HasPrefix(from, prefix) {
		if (bytes.Compare(from, prefix) < 0) == o.Reverse {
			return nil // the whole prefix lies before the start
		}
		from = nil // the whole prefix lies behind it
	}
	seen := 0
	var stop error // fn's own, returned unwrapped
	err := b.s.during("scan bucket "+b.name, func() error {
		return b.s.catalog.walk(prefix, from, o.Reverse, func(key []byte, value func() ([]byte, error)) (bool, error) {
			v, err := value()
			if err != nil {
				return false, err
			}
			seen++
			stop = fn(bytes.Clone(key[len(b.prefix):]), v)
			return stop == nil && seen != o.Limit, nil
		})
	})
	return cmp.Or(stop, err)
}

func (b *Bucket) key(k []byte) []byte {
	return append(b.prefix[:len(b.prefix):len(b.prefix)], k...)
}
