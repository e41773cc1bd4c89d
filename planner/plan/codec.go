package plan

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"pnode/kernels/quant"
	"pnode/pipeline/schedule"
)

// Codec says how the elements of a boundary tensor travel. The zero value is none.
type Codec uint8

// The codecs, the most exact first. Package pipeline/wire encodes and decodes them.
const (
	_ Codec = iota
	// CodecF32 changes nothing.
	CodecF32
	// CodecBF16 sends half of the bits.
	CodecBF16
	// CodecInt8 sends a quarter, and a float32 scale for each CodecInt8Group elements of a token.
	CodecInt8
	// CodecInt4 sends an eighth: of each tile of a token's elements, rotated, 4 bits each and a float32 scale.
	CodecInt4
	codecEnd
)

// CodecInt8Group counts the elements of CodecInt8 that share a scale: 4 bytes for 128 elements are 3%.
const CodecInt8Group = quant.Group

// CodecInt4Tile counts the elements of the largest tile in CodecInt4: 4 bytes for 256 elements are 3% of their 128.
const CodecInt4Tile = 256

// leastInt4Tile counts those of the smallest one, which is filled up with zeros.
const leastInt4Tile = 32

// NextInt4Tile counts the elements of the tile that comes next in CodecInt4 where a token has so many left: the largest power of two that is no more.
func NextInt4Tile(left int) int {
	return max(leastInt4Tile, min(CodecInt4Tile, 1<<(bits.Len(uint(left))-1)))
}

// CodecFront counts the bytes that precede a tensor's elements and say how they are written.
const CodecFront = 4

// MaxMessageBytes bounds a message between workers.
const MaxMessageBytes = 256 << 20

// ErrBadCodec is wrapped by errors about names of codecs.
var ErrBadCodec = errors.New("planner: unknown codec")

var codecNames = []string{"f32", "bf16", "int8", "int4"}

// CodecNames returns the names of all codecs, the most exact first.
func CodecNames() []string { return slices.Clone(codecNames) }

// Valid reports whether c is one of the codecs.
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
		return 0, fmt.Errorf("%w %q: want one of %s", ErrBadCodec, name, strings.Join(codecNames, ", "))
	}
	return CodecF32 + Codec(i), nil
}

// Bytes returns the size on the wire of a tensor of so many elements, of which a token has so many; 0 is all of them. Where elements share a scale
// they are of one token: what is rounded of a token must not tell the ones before it of the next.
func (c Codec) Bytes(elements, token int64) int64 {
	if token == 0 {
		token = max(1, elements)
	}
	return CodecFront + elements/token*c.tokenBytes(token) + c.tokenBytes(elements%token)
}

// tokenBytes returns the size of a token's elements.
func (c Codec) tokenBytes(elements int64) int64 {
	switch c {
	case CodecBF16:
		return 2 * elements
	case CodecInt8:
		return elements + quant.ScaleBytes*((elements+CodecInt8Group-1)/CodecInt8Group)
	case CodecInt4:
		whole := elements / CodecInt4Tile
		bytes := whole * (quant.ScaleBytes + CodecInt4Tile/2)
		for left := int(elements % CodecInt4Tile); left > 0; {
			tile := NextInt4Tile(left)
			bytes += quant.ScaleBytes + int64(tile/2)
			left -= tile
		}
		return bytes
	default:
		return 4 * elements
	}
}

// CodecRule says in which codecs boundary tensors may travel between stages. The zero value
// is F32 everywhere, which changes no loss. Of a rule of several codecs the run's first plan with boundaries takes the most
// exact one that hides the messages of all boundaries as well as any of them. Later plans have the same.
type CodecRule struct {
	// widest is the most exact codec, narrowest the one of the fewest bits; zero is F32.
	widest, narrowest Codec
}

// CodecRules returns the texts of the rules, the default first.
func CodecRules() []string {
	rules := append(CodecNames(), auto)
	for _, name := range codecNames[1:] {
		if name != CodecInt8.String() { // which auto goes to
			rules = append(rules, auto+":"+name)
		}
	}
	return rules
}

// ParseCodecRule reads a rule: a codec for all boundaries, `auto` for a choice that goes no further
// than to int8, or `auto:bf16` and `auto:int4` for one that goes no further than to these. The error wraps ErrBadInput.
func ParseCodecRule(text string) (CodecRule, error) {
	name, choice := strings.CutPrefix(text, auto)
	if choice && name == "" {
		return CodecRule{CodecF32, CodecInt8}, nil
	}
	if choice {
		name, _ = strings.CutPrefix(name, ":")
	}
	codec, err := ParseCodec(name)
	rule := CodecRule{codec, codec}
	if choice {
		rule.widest = CodecF32
	}
	if err != nil || rule.String() != text && text != CodecF32.String() {
		return CodecRule{}, fmt.Errorf("%w: codec is %.20q: want one of %s", ErrBadInput, text, strings.Join(CodecRules(), ", "))
	}
	if codec == CodecF32 {
		return CodecRule{}, nil
	}
	return rule, nil
}

// OneCodec returns the rule of one codec for all boundaries.
func OneCodec(c Codec) CodecRule {
	if c == CodecF32 {
		return CodecRule{}
	}
	return CodecRule{c, c}
}

// Auto reports whether the first plan with a boundary between workers chooses.
func (r CodecRule) Auto() bool { return r.widest != r.narrowest }

// Bounds returns the most exact codec that the rule allows and the one of the fewest bits.
func (r CodecRule) Bounds() (widest, narrowest Codec) {
	return max(r.widest, CodecF32), max(r.narrowest, CodecF32)
}

func (r CodecRule) String() string {
	widest, narrowest := r.Bounds()
	switch {
	case widest == narrowest:
		return widest.String()
	case narrowest == CodecInt8: // Auto
		return auto
	}
	return auto + ":" + narrowest.String()
}

// MarshalText returns the rule's text.
func (r CodecRule) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads a rule's text.
func (r *CodecRule) UnmarshalText(text []byte) (err error) {
	*r, err = ParseCodecRule(string(text))
	return err
}

// Rounds reports whether replica 0 of a plan, which evaluates the model, has anything but float32 in a
// stage or between two workers: then its held-out loss differs from that of float32 throughout.
func (t TrainSpec) Rounds(p Plan) bool {
	return t.Storage.Rounds(p) || len(p.Replicas) > 0 && p.Replicas[0].coded()
}

// coded reports whether a codec changes what crosses a boundary between workers.
func (p Pipeline) coded() bool {
	for s, place := range p.Stages[:max(0, len(p.Stages)-1)] {
		if place.Codec != "" && place.Codec != CodecF32.String() && place.Worker() != p.Stages[s+1].Worker() {
			return true
		}
	}
	return false
}

// Codecs returns by boundary the codecs of a pipeline, F32 where the plan has none.
func (p Pipeline) Codecs() ([]Codec, error) {
	codecs := make([]Codec, 0, len(p.Stages))
	for s, place := range p.Stages[:len(p.Stages)-1] {
		codec := CodecF32
		if place.Codec != "" {
			var err error
			if codec, err = ParseCodec(place.Codec); err != nil {
				return nil, fmt.Errorf("%w: boundary after stage %d: %w", ErrBadPlan, s, err)
			}
		}
		codecs = append(codecs, codec)
	}
	return codecs, nil
}

// ErrTooLong is wrapped by errors about messages between workers that no link takes.
var ErrTooLong = errors.New("planner: a message is too long for a link")

// CheckMessages returns an error where tensors between so many stages do not fit into a message. It
// wraps ErrTooLong and names the setting that is too large.
func (s RunSpec) CheckMessages(stages int) error {
	_, codec := s.Train.Codec.Bounds()
	batch, each := int64(s.Train.MicroBatch), s.sequenceBytes(codec)
	if stages < 2 || batch*each <= messageRoom {
		return nil
	}
	want := "a shorter context"
	if most := messageRoom / each; most > 0 {
		want = fmt.Sprintf("at most %d, with more micros", most)
	}
	if codec == CodecF32 {
		want += ", or codec bf16, which halves that"
	}
	return fmt.Errorf("%w: micro_batch is %d: with a context of %d and %d channels %s cross between stages at once, %s can: want %s, or stages 1",
		ErrTooLong, batch, s.Model.Context, s.Model.Channels, Size(batch*each), Size(MaxMessageBytes), want)
}

// CodecBounds returns the bounds of the run's rule, without codecs in which messages between stages are
// too long.
func (s RunSpec) CodecBounds() (widest, narrowest Codec) {
	widest, narrowest = s.Train.Codec.Bounds()
	for widest < narrowest && int64(s.Train.MicroBatch)*s.sequenceBytes(widest) > messageRoom {
		widest++
	}
	return widest, narrowest
}

// messageRoom is the room of a message for elements.
const messageRoom = MaxMessageBytes - CodecFront

// sequenceBytes returns what one sequence [T,C] adds to a message between stages. In Int8 it counts as
// in BF16, which tensors take that Int8 does not hold.
func (s RunSpec) sequenceBytes(codec Codec) int64 {
	channels := int64(s.Model.Channels)
	elements := int64(s.Model.Context) * channels
	if spec, err := schedule.ParseSpec(s.Train.Schedule); err == nil {
		elements /= int64(max(spec.Segments(), 1))
	}
	bytes := min(codec, CodecBF16).Bytes(elements, channels)
	if codec == CodecInt4 { // whose tiles are larger than a token of few channels
		bytes = max(bytes, codec.Bytes(elements, channels))
	}
	return bytes - CodecFront
}
