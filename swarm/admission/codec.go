package admission

import (
	"encoding/binary"
	"fmt"

	"pnode/swarm/version"
)

// decoder reads bounded little-endian fields. After the first failure it returns zero values only, and
// err says what was wrong. Each length is checked against its bound and the bytes present
// before anything is allocated.
type decoder struct {
	b   []byte
	err error
}

// take returns the next n bytes, not copied.
func (d *decoder) take(n int) []byte {
	if d.err != nil {
		return nil
	}
	if n > len(d.b) {
		d.err = malformed("%d bytes missing", n-len(d.b))
		return nil
	}
	out := d.b[:n:n]
	d.b = d.b[n:]
	return out
}

func (d *decoder) u8() uint8 {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) u16() uint16 {
	if b := d.take(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (d *decoder) u64() uint64 {
	if b := d.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// count reads a 16-bit count and refuses one above limit.
func (d *decoder) count(limit int) int {
	n := int(d.u16())
	if d.err == nil && n > limit {
		d.err = malformed("count %d, at most %d is accepted", n, limit)
		return 0
	}
	return n
}

// bytes reads a field with a 16-bit length of at most limit.
func (d *decoder) bytes(limit int) []byte { return d.take(d.count(limit)) }

// version reads a format's first byte and refuses an unknown version.
func (d *decoder) version(want uint8, what string) {
	if v := d.u8(); d.err == nil && v != want {
		d.err = fmt.Errorf("%w: %w", ErrMalformed, version.Unknown(what, int(v), int(want)))
	}
}

// end refuses bytes after the last field.
func (d *decoder) end() error {
	if d.err == nil && len(d.b) > 0 {
		d.err = malformed("%d bytes after the end", len(d.b))
	}
	return d.err
}

// appendBytes writes a field with a 16-bit length.
func appendBytes[T ~string | ~[]byte](dst []byte, b T) []byte {
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(b)))
	return append(dst, b...)
}
