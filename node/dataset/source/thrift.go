package source

import (
	"errors"
	"fmt"

	"github.com/parquet-go/parquet-go/encoding/thrift"
)

const (
	// maxThriftDepth bounds structures in one another: Parquet's own have some 8.
	maxThriftDepth = 32
	// maxThriftItems bounds a list: a file has at most 32767 row groups and 65534 columns.
	maxThriftItems = 1 << 17
)

// checkThrift goes through encoded structures before the library decodes them: it would allocate lists of whatever size they claim, and
// follow structures into one another until the stack ends.
func checkThrift(encoded []byte) error {
	w := thriftWalk{r: new(thrift.CompactProtocol).NewReaderFromBytes(encoded), size: len(encoded)}
	return w.fields(maxThriftDepth)
}

type thriftWalk struct {
	r    thrift.BytesReader
	size int
}

// fields passes over a structure.
func (w thriftWalk) fields(depth int) error {
	for {
		f, err := w.r.ReadField()
		if err != nil || f.Type == thrift.STOP {
			return err
		}
		if f.Type == thrift.TRUE || f.Type == thrift.FALSE {
			continue // the type is the value
		}
		if err := w.value(f.Type, depth); err != nil {
			return err
		}
	}
}

func (w thriftWalk) value(t thrift.Type, depth int) (err error) {
	if depth == 0 {
		return fmt.Errorf("structures more than %d deep", maxThriftDepth)
	}
	switch t {
	case thrift.TRUE, thrift.FALSE, thrift.I8:
		_, err = w.r.ReadInt8()
	case thrift.I16:
		_, err = w.r.ReadInt16()
	case thrift.I32:
		_, err = w.r.ReadInt32()
	case thrift.I64:
		_, err = w.r.ReadInt64()
	case thrift.DOUBLE:
		_, err = w.r.ReadFloat64()
	case thrift.BINARY:
		_, err = w.r.ReadBytes()
	case thrift.LIST, thrift.SET:
		list, err := w.r.ReadList()
		if err != nil {
			return err
		}
		return w.items(list.Size, depth, list.Type)
	case thrift.MAP:
		m, err := w.r.ReadMap()
		if err != nil {
			return err
		}
		return w.items(m.Size, depth, m.Key, m.Value)
	case thrift.STRUCT:
		return w.fields(depth - 1)
	default:
		return errors.New("values of no known type")
	}
	return err
}

// items passes over a list or map: each takes a byte or more.
func (w thriftWalk) items(n int32, depth int, types ...thrift.Type) error {
	if n < 0 || int(n) > min(maxThriftItems, w.size-w.r.BytesRead()) {
		return fmt.Errorf("a list of %d items in %d bytes, at most %d are accepted", n, w.size-w.r.BytesRead(), maxThriftItems)
	}
	for range n {
		for _, t := range types {
			if err := w.value(t, depth-1); err != nil {
				return err
			}
		}
	}
	return nil
}
