package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
)

// Op is one change of a batch: Value is put under Key, or Key is deleted.
type Op struct {
	Key    []byte
	Value  []byte
	Delete bool
}

const (
	magic   = "pnodelog"
	version = 1
	// headerBytes: magic, version (4 bytes), rewriting (8), bytes of the records that the rewriting wrote (8), CRC-32C.
	headerBytes = 8 + 4 + 8 + 8 + 4
	// recordBytes precede a batch: CRC-32C of all that follows, number (8 bytes), length of the batch (4).
	recordBytes = 4 + 8 + 4
	// maxBatchBytes bounds an encoded batch.
	maxBatchBytes = 16 << 20
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	le         = binary.LittleEndian
	errBatch   = errors.New("a batch that is none")
)

// header begins a file. All numbers are little-endian.
type header struct {
	rewriting uint64 // how often the journal has been written anew
	bytes     uint64 // of records that this rewriting wrote; batches follow
}

func (h header) encode() []byte {
	b := append(make([]byte, 0, headerBytes), magic...)
	b = le.AppendUint32(b, version)
	b = le.AppendUint64(b, h.rewriting)
	b = le.AppendUint64(b, h.bytes)
	return le.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func decodeHeader(b []byte) (h header, err error) {
	if len(b) < headerBytes {
		return h, fmt.Errorf("it ends after %d bytes", len(b))
	}
	if sum := headerBytes - 4; string(b[:8]) != magic || le.Uint32(b[sum:]) != crc32.Checksum(b[:sum], castagnoli) {
		return h, errors.New("its first bytes are not those of a journal")
	}
	if v := le.Uint32(b[8:]); v != version {
		return h, fmt.Errorf("%w: format %d, this program reads %d", ErrVersion, v, version)
	}
	return header{rewriting: le.Uint64(b[12:]), bytes: le.Uint64(b[20:])}, nil
}

// appendRecord appends a batch with its number; at is where in the record each value begins.
func appendRecord(b []byte, number uint64, ops []Op) (record []byte, at []int) {
	start := len(b)
	b = le.AppendUint64(append(b, 0, 0, 0, 0), number)
	b = append(b, 0, 0, 0, 0)
	for _, op := range ops {
		b = binary.AppendUvarint(b, uint64(len(op.Key)))
		b = append(b, op.Key...)
		length := uint64(len(op.Value)) + 1
		if op.Delete {
			length = 0
		}
		b = binary.AppendUvarint(b, length)
		at = append(at, len(b)-start)
		if !op.Delete {
			b = append(b, op.Value...)
		}
	}
	le.PutUint32(b[start+12:], uint32(len(b)-start-recordBytes))
	le.PutUint32(b[start:], crc32.Checksum(b[start+4:], castagnoli))
	return b, at
}

// cutRecord returns the record of this number that b begins with; nil when it begins with none that is whole.
func cutRecord(b []byte, number uint64) []byte {
	if len(b) < recordBytes || le.Uint64(b[4:]) != number {
		return nil
	}
	n := le.Uint32(b[12:])
	if n > maxBatchBytes || int(n) > len(b)-recordBytes {
		return nil
	}
	b = b[:recordBytes+int(n)]
	if le.Uint32(b) != crc32.Checksum(b[4:], castagnoli) {
		return nil
	}
	return b
}

// decodeBatch reads the batch of a record. Keys and values alias it; at is where in the record each value begins.
func decodeBatch(record []byte) (ops []Op, at []int, err error) {
	b := record[recordBytes:]
	cut := func(n uint64) (part []byte) {
		if n > uint64(len(b)) {
			err = errBatch
			return nil
		}
		part, b = b[:n:n], b[n:]
		return part
	}
	length := func() uint64 {
		v, n := binary.Uvarint(b)
		if n <= 0 || v > math.MaxInt32 {
			err = errBatch
			return 0
		}
		b = b[n:]
		return v
	}
	for len(b) > 0 && err == nil {
		op := Op{Key: cut(length())}
		n := length()
		at = append(at, len(record)-len(b))
		if op.Delete = n == 0; !op.Delete {
			op.Value = cut(n - 1)
		}
		ops = append(ops, op)
	}
	return ops, at, err
}
