package wire

import (
	"fmt"
	"math"

	"pnode/kernels/quant"
	"pnode/planner/plan"
)

// Codec says how the elements of a boundary tensor are written. The zero value is refused.
type Codec = plan.Codec

// The codecs, the most exact first.
const (
	// F32 changes nothing: little-endian float32, element after element.
	F32 = plan.CodecF32
	// BF16 keeps the upper half of each float32, rounded to the nearest, ties to even.
	BF16 = plan.CodecBF16
	// Int8 keeps 8 bits an element and a float32 scale for each plan.CodecInt8Group of a token's,
	// rounded up or down by chance so that the mean is right (Gupta et al. 2015, "Deep
	// Learning with Limited Numerical Precision", section 3).
	Int8 = plan.CodecInt8
	// Int4 keeps 4 bits an element and a float32 scale for each tile of a token's (plan.NextInt4Tile), after a rotation that spreads the large ones.
	// Gradients are rounded by chance, activations to the nearest.
	Int4 = plan.CodecInt4
)

// ParseCodec reads a codec's name.
func ParseCodec(name string) (Codec, error) {
	c, err := plan.ParseCodec(name)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrValue, err)
	}
	return c, nil
}

// tensorFront is the size of what goes before the elements: codec u8 | zero 3 bytes.
const tensorFront = plan.CodecFront

// TensorBytes returns the size of n elements in a codec, of which a token has so many.
func TensorBytes(c Codec, n, token int) int { return int(c.Bytes(int64(n), int64(token))) }

// maxError bounds the relative error of a codec that is used: the root of the summed squares of the
// errors, divided by that of the elements. BF16 has less than 2^-8 for all but subnormal numbers, Int8
// about 0.009 where the elements are spread like a normal distribution; a group in which
// one element outweighs the others is what takes it past the bound. Int4 has about 0.12 to the nearest and 0.18 by chance,
// wherever large elements stand; a tile whose elements rotate into a few large ones takes it past the bound.
var maxError = [...]float64{F32: math.Inf(1), BF16: 1.0 / 256, Int8: 0.03, Int4: 0.25}

// Encoded says how a tensor was written.
type Encoded struct {
	// Codec is the one asked for, or the next better one whose error is within bounds.
	Codec Codec
	// RelError is the error of what was written, Refused that of the codec asked for when
	// it was not used, else 0. NaN stands for a tensor that is not finite.
	RelError, Refused float64
}

// AppendTensor appends xs in a codec; each token has as many elements as are said. Where its error passes the bound the next better codec
// is taken. That depends on xs, token, c and n alone: whoever computes the same tensor again, after
// a resend, in another generation or on another machine, writes the same bytes.
func AppendTensor(dst []byte, c Codec, xs []float32, token int, n Noise) ([]byte, Encoded) {
	return appendTensor(dst, c, xs, token, n, true)
}

// AppendActivation is AppendTensor but that Int4 rounds to the nearest, and takes larger elements: an error of activations costs what its
// square is, while gradients are summed, and have to be right in the mean.
func AppendActivation(dst []byte, c Codec, xs []float32, token int, n Noise) ([]byte, Encoded) {
	return appendTensor(dst, c, xs, token, n, false)
}

func appendTensor(dst []byte, c Codec, xs []float32, token int, n Noise, back bool) ([]byte, Encoded) {
	start := len(dst)
	var e Encoded
	for e.Codec = c; ; e.Codec-- {
		dst = append(dst[:start], byte(e.Codec), 0, 0, 0)
		switch e.Codec {
		case BF16:
			dst, e.RelError = appendBF16(dst, xs)
		case Int8:
			dst, e.RelError = appendInt8(dst, xs, token, n)
		case Int4:
			dst, e.RelError = appendInt4(dst, xs, token, n, back)
		case F32:
			dst, e.RelError = AppendF32(dst, xs), 0
		default:
			panic("wire: " + e.Codec.String())
		}
		if e.Codec == F32 || e.RelError <= maxError[e.Codec] {
			return dst, e
		}
		if e.Codec == c {
			e.Refused = e.RelError
		}
	}
}

// AppendRefused is AppendTensor where it is known that c is not used, and for which error.
func AppendRefused(dst []byte, c Codec, refused float64, xs []float32, token int, n Noise) ([]byte, Encoded) {
	dst, e := AppendTensor(dst, c-1, xs, token, n)
	e.Refused = refused
	return dst, e
}

// DecodeTensor fills dst, of which a token has so many elements, from b, which names its codec and has exactly the bytes that
// TensorBytes returns.
func DecodeTensor(dst []float32, token int, b []byte) (Codec, error) {
	if len(b) < tensorFront {
		return 0, fmt.Errorf("%w: tensor of %d bytes, want %d or more", ErrLength, len(b), tensorFront)
	}
	c := Codec(b[0])
	if !c.Valid() || b[1]|b[2]|b[3] != 0 {
		return 0, fmt.Errorf("%w: tensor begins with %x", ErrValue, b[:tensorFront])
	}
	if want := TensorBytes(c, len(dst), token); len(b) != want {
		return 0, fmt.Errorf("%w: tensor of %d bytes, want %d for %d elements in %v", ErrLength, len(b), want, len(dst), c)
	}
	b = b[tensorFront:]
	switch c {
	case BF16:
		decodeBF16(dst, b)
	case Int8:
		decodeInt8(dst, token, b)
	case Int4:
		return c, decodeInt4(dst, token, b)
	default:
		return c, DecodeF32(dst, b)
	}
	return c, nil
}

// NewF32Tensor returns a tensor of n elements in F32 and the part of it that holds them, to be
// filled by whoever has them in memory.
func NewF32Tensor(n int) (tensor, elements []byte) {
	tensor = make([]byte, TensorBytes(F32, n, n))
	tensor[0] = byte(F32)
	return tensor, tensor[tensorFront:]
}

// F32Elements returns the elements of a tensor of n elements if it is in F32 and well-formed.
func F32Elements(tensor []byte, n int) (elements []byte, ok bool) {
	if !fronted(tensor, F32, n) {
		return nil, false
	}
	return tensor[tensorFront:], true
}

// fronted reports whether a tensor begins, and is as long, as one of n elements in a codec, of tokens that share no scale.
func fronted(tensor []byte, c Codec, n int) bool {
	front := [tensorFront]byte{byte(c)}
	return len(tensor) == TensorBytes(c, n, n) && [tensorFront]byte(tensor[:tensorFront]) == front
}

// relative returns the relative error of a tensor, given two sums of squares.
func relative(wrong, all float64) float64 {
	if wrong == 0 {
		return 0
	}
	return math.Sqrt(wrong / all)
}

// Noise is the key of the numbers by which a tensor is rounded. The n-th number is a function
// of key and n, so that a tensor is rounded the same whenever and wherever it is computed.
type Noise uint64

// Crossing names one tensor on its way over a boundary between stages, by what does not
// change with the generation, the number of stages or the schedule.
type Crossing struct {
	Step  plan.Step
	Micro plan.Micro
	// Layer is the first one after the boundary.
	Layer int
	// Back marks a gradient; others are activations.
	Back bool
}

// NoiseOf returns the key for a crossing in a run of this seed.
func NoiseOf(seed uint64, c Crossing) Noise {
	n := Noise(seed)
	direction := uint64(0)
	if c.Back {
		direction = 1
	}
	for _, v := range [...]uint64{uint64(c.Step), uint64(c.Micro), uint64(c.Layer), direction} {
		n = Noise(n.at(v))
	}
	return n
}

// at returns number i.
func (n Noise) at(i uint64) uint64 { return quant.Number(uint64(n), i) }
