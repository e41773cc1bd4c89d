package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Errors of this package.
var (
	// ErrFormat: the file is not what the format says.
	ErrFormat = errors.New("not a valid safetensors file")
	// ErrDType: the element type is not one that converts.
	ErrDType = errors.New("unsupported element type")
	// ErrNoTensor: the file or set has no tensor of that name.
	ErrNoTensor = errors.New("no such tensor")
	// ErrIncomplete: a file was committed before all its tensors were written.
	ErrIncomplete = errors.New("tensors are missing")
)

// Bounds of what is read before any of it is believed. A header at both of the first two parses
// in under a second on a slow core. Real models stay far below: 671 billion parameters in 163
// files have 92,000 tensors, whose headers take 12 MB in all.
const (
	// MaxHeaderBytes bounds the header of one file; the reference reads 100 MB.
	MaxHeaderBytes = 16 << 20
	// MaxTensors bounds the tensors of one file, and the entries of its metadata.
	MaxTensors = 1 << 17
	// maxDims bounds a shape; PyTorch has the same limit.
	maxDims = 64
	// maxNameBytes bounds the name of a tensor: it stands in errors and in the index.
	maxNameBytes = 1 << 10
)

const (
	prefixBytes = 8 // the header's length
	alignBytes  = 8 // of the first tensor
	metadataKey = "__metadata__"
)

// Tensor is one entry of a header.
type Tensor struct {
	Name  string
	DType DType
	Shape []int // row-major; no dimensions: one element

	offset, bytes int64 // in the file's data part
}

// Len is the number of elements.
func (t Tensor) Len() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// sizeBytes checks type and shape and gives the bytes they take.
func (t Tensor) sizeBytes() (int64, error) {
	if t.DType.rank() < 0 {
		return 0, fmt.Errorf("%w: tensor %q has the unknown element type %.32q", ErrFormat, t.Name, string(t.DType))
	}
	n := uint64(1)
	if slices.Contains(t.Shape, 0) {
		n = 0
	}
	for _, d := range t.Shape {
		over, product := bits.Mul64(n, uint64(d))
		if d < 0 || over != 0 || product > 1<<56 {
			return 0, fmt.Errorf("%w: tensor %q has the shape %v", ErrFormat, t.Name, t.Shape)
		}
		n = product
	}
	n *= uint64(t.DType.bits())
	if n%8 != 0 {
		return 0, fmt.Errorf("%w: tensor %q of %s and shape %v does not end at a byte", ErrFormat, t.Name, t.DType, t.Shape)
	}
	return int64(n / 8), nil
}

// header is the parsed front of a file.
type header struct {
	tensors  []Tensor // in the order of their data
	metadata map[string]string
}

// format is the header as the reference writes it, with its length in front.
func (h header) format() ([]byte, error) {
	var b bytes.Buffer
	b.Write(make([]byte, prefixBytes))
	b.WriteByte('{')
	if len(h.metadata) > 0 {
		encoded, err := marshal(h.metadata)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "%q:%s", metadataKey, encoded)
	}
	for _, t := range h.tensors {
		if b.Len() > prefixBytes+1 {
			b.WriteByte(',')
		}
		name, err := marshal(t.Name)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, `%s:{"dtype":%q,"shape":[`, name, string(t.DType))
		for i, d := range t.Shape {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(strconv.Itoa(d))
		}
		fmt.Fprintf(&b, `],"data_offsets":[%d,%d]}`, t.offset, t.offset+t.bytes)
	}
	b.WriteByte('}')
	for b.Len()%alignBytes != 0 {
		b.WriteByte(' ')
	}
	if n := b.Len() - prefixBytes; n > MaxHeaderBytes {
		return nil, fmt.Errorf("safetensors: the header of %d tensors takes %d bytes, at most %d are allowed", len(h.tensors), n, MaxHeaderBytes)
	}
	binary.LittleEndian.PutUint64(b.Bytes(), uint64(b.Len()-prefixBytes))
	return b.Bytes(), nil
}

// marshal is JSON without HTML's escapes.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("safetensors: write header: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// marshalIndent is the form of Python's json.dumps(indent=2), with a newline at its end.
func marshalIndent(v any) ([]byte, error) {
	compact, err := marshal(v)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = json.Indent(&b, compact, "", "  ")
	b.WriteByte('\n')
	return b.Bytes(), err
}

// layout checks the entries, sorts them as the reference does and places them one after
// the other.
func layout(tensors []Tensor, metadata map[string]string) (header, error) {
	sorted := slices.Clone(tensors)
	slices.SortFunc(sorted, func(a, b Tensor) int {
		return cmp.Or(cmp.Compare(b.DType.rank(), a.DType.rank()), cmp.Compare(a.Name, b.Name))
	})
	names := make(map[string]bool, len(sorted))
	var used int64
	for i := range sorted {
		t := &sorted[i]
		if names[t.Name] || t.Name == metadataKey || !utf8.ValidString(t.Name) {
			return header{}, fmt.Errorf("safetensors: the name %q is used twice, reserved or not UTF-8", t.Name)
		}
		names[t.Name] = true
		size, err := t.sizeBytes()
		if err != nil {
			return header{}, err
		}
		t.offset, t.bytes = used, size
		used += size
	}
	return header{tensors: sorted, metadata: metadata}, nil
}

// readHeader reads and checks the front of a file of size bytes.
func readHeader(r io.ReaderAt, size int64) (h header, dataStart int64, err error) {
	var prefix [prefixBytes]byte
	if err := readFull(r, prefix[:], 0); err != nil {
		return header{}, 0, err
	}
	n := binary.LittleEndian.Uint64(prefix[:])
	if n > MaxHeaderBytes {
		return header{}, 0, fmt.Errorf("%w: a header of %d bytes: at most %d are accepted", ErrFormat, n, MaxHeaderBytes)
	}
	if int64(n) > size-prefixBytes {
		return header{}, 0, fmt.Errorf("%w: a header of %d bytes in a file of %d", ErrFormat, n, size)
	}
	text := make([]byte, n)
	if err := readFull(r, text, prefixBytes); err != nil {
		return header{}, 0, err
	}
	h, err = parseHeader(text)
	if err != nil {
		return header{}, 0, err
	}
	dataStart = prefixBytes + int64(n)
	return h, dataStart, h.checkCover(size - dataStart)
}

// checkCover sorts the tensors by place and checks that each starts where the one before
// ends and the last where the data ends.
func (h *header) checkCover(dataBytes int64) error {
	slices.SortFunc(h.tensors, func(a, b Tensor) int {
		return cmp.Or(cmp.Compare(a.offset, b.offset), cmp.Compare(a.bytes, b.bytes), cmp.Compare(a.Name, b.Name))
	})
	var end int64
	for _, t := range h.tensors {
		size, err := t.sizeBytes()
		if err != nil {
			return err
		}
		if t.offset != end || t.bytes != size {
			return fmt.Errorf("%w: tensor %q lies at %d with %d bytes, expected at %d with %d", ErrFormat, t.Name, t.offset, t.bytes, end, size)
		}
		end += size
	}
	if end != dataBytes {
		return fmt.Errorf("%w: its tensors take %d bytes, the file has %d", ErrFormat, end, dataBytes)
	}
	return nil
}

func readFull(r io.ReaderAt, b []byte, off int64) error {
	n, err := r.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: it ends after %d bytes", ErrFormat, off+int64(n))
	}
	return err
}
