package checkpoint

import (
	"bytes"
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

// Scan visits the pairs as they were when it began, in ascending order beginning with the first
// key not less than from, or in descending order beginning with the last key not greater than
// from, until visit returns false. Nil is all of them. visit owns key and value and may use the
// bucket.
func (b *Bucket) Scan(from []byte, reverse bool, visit func(key, value []byte) bool) error {
	if from != nil {
		from = b.key(from)
	}
	return b.s.during("scan bucket "+b.name, func() error {
		return b.s.catalog.walk(b.prefix, from, reverse, func(key, value []byte) bool { return visit(key[len(b.prefix):], value) })
	})
}

func (b *Bucket) key(k []byte) []byte {
	return append(b.prefix[:len(b.prefix):len(b.prefix)], k...)
}
