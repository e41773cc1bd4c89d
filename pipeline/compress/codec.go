package compress

import (
	"fmt"
	"slices"
	"strings"

	"pnode/kernels/quant"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// Codec is a form of a gradient tensor's elements. The zero value is refused.
type Codec uint8

// The codecs, the most exact first, with their bits an element.
const (
	_ Codec = iota
	// F32 has 32 bits and changes nothing.
	F32
	// BF16 has 16 bits, rounded to the nearest, ties to even.
	BF16
	// Int8 has 8.25 bits: package quant's groups of 128 elements with a float32 scale, rounded by chance, as a device writes them too.
	Int8
	// Int4 has 4.25 bits: blocks of 64 elements with a bfloat16 scale, rounded to the nearest of 15 steps.
	Int4
	// TopK has 0.219 bits: of each 4,096 elements the 64 with the largest magnitudes, at 12 bits for the place of each and 2 for its value
	// (SparseLoCo: arXiv 2508.15706, section 3).
	TopK
	codecEnd
)

var codecNames = plan.OuterCodecs()

// Valid reports whether c is one of the codecs.
func (c Codec) Valid() bool { return c > 0 && c < codecEnd }

func (c Codec) String() string {
	if !c.Valid() {
		return fmt.Sprintf("codec(%d)", uint8(c))
	}
	return codecNames[c-F32]
}

// Parse reads a codec's name. The error wraps wire.ErrValue.
func Parse(name string) (Codec, error) {
	i := slices.Index(codecNames, name)
	if i < 0 {
		return 0, fmt.Errorf("%w: codec %q for gradients, want one of %s", wire.ErrValue, name, strings.Join(codecNames, ", "))
	}
	return F32 + Codec(i), nil
}

// Bytes returns the size of a tensor of n elements.
func (c Codec) Bytes(n int) int {
	switch c {
	case F32:
		return 4 * n
	case BF16:
		return 2 * n
	case Int8:
		return quant.Bytes(n)
	case Int4:
		return int4Bytes(n)
	case TopK:
		return topKBytes(n)
	}
	panic("compress: " + c.String())
}

// Block returns the number of elements that are written together. The bytes of elements [first,end) of a tensor are those
// from Bytes(first) to Bytes(end) where first is a multiple of it, and can be read alone. 0: a tensor is written as a whole.
func (c Codec) Block() int {
	switch c {
	case F32, BF16:
		return 1
	case Int8:
		return quant.Group
	case Int4:
		return int4Block
	}
	return 0
}

// Decay returns what is left of what earlier messages lacked when the next one is written. SparseLoCo forgets a part of it
// in place of an outer momentum (arXiv 2508.15706, algorithm 1).
func (c Codec) Decay() float32 {
	if c == TopK {
		return 0.95
	}
	return 1
}

// Place names a message by what does not change with the stages.
type Place struct {
	Step    plan.Step // inner steps of the run so far
	Replica plan.Replica
	Layer   int
	Tensor  int // of the layer
}

// Noise returns the numbers that round the message of a place in a run of this seed.
func (p Place) Noise(seed uint64) wire.Noise {
	n := seed
	for _, v := range [...]uint64{uint64(p.Step), uint64(p.Replica), uint64(p.Layer), uint64(p.Tensor)} {
		n = quant.Number(n, v)
	}
	return wire.Noise(n)
}
