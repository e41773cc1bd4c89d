package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"pnode/kernels/quant"
)

// Codec is how the elements of a boundary tensor travel. The zero value is none.
type Codec uint8

// The codecs, the most exact first. What each does to the elements is pipeline/wire's.
const (
	_ Codec = iota
	// CodecF32 changes nothing.
	CodecF32
	// CodecBF16 sends half of the bits.
	CodecBF16
	// CodecInt8 sends a quarter, and a float32 scale for each CodecInt8Group elements.
	CodecInt8
	codecEnd
)

// CodecInt8Group is how many elements of CodecInt8 share a scale: 4 bytes for 128 elements are 3%.
const CodecInt8Group = quant.Group

// CodecFront is how many bytes precede the elements of a tensor and say how they are written.
const CodecFront = 4

// MaxMessageBytes bounds a message between workers.
const MaxMessageBytes = 256 << 20

// ErrBadCodec is wrapped by errors about names of codecs.
var ErrBadCodec = errors.New("cost: unknown codec")

var codecNames = []string{"f32", "bf16", "int8"}

// CodecNames are those of all codecs, the most exact first.
func CodecNames() []string { return slices.Clone(codecNames) }

// Valid tells whether c is one of the codecs.
func (c Codec) Valid() bool { return c > 0 && c < codecEnd }

func (c Codec) String() string {
	if !c.Valid() {
		return fmt.Sprintf("codec(%d)", uint8(c))
	}
	return codecNames[c-CodecF32]
}

// ParseCodec reads a codec's name. The error wraps ErrBadCodec.
func ParseCodec(name string) (Codec, error) {
	i := slices.Index(codecNames, name)
	if i < 0 {
		return 0, fmt.Errorf("%w %q: take one of %s", ErrBadCodec, name, strings.Join(codecNames, ", "))
	}
	return CodecF32 + Codec(i), nil
}

// Bytes is the size of a tensor of so many elements.
func (c Codec) Bytes(elements int64) int64 {
	switch c {
	case CodecBF16:
		return CodecFront + 2*elements
	case CodecInt8:
		return CodecFront + elements + 4*((elements+CodecInt8Group-1)/CodecInt8Group)
	default:
		return CodecFront + 4*elements
	}
}
