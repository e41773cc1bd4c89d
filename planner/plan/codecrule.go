package plan

import (
	"fmt"
	"strings"
)

// CodecRule says in which codecs boundary tensors may travel between stages. The zero value
// is F32 everywhere, which changes no loss. Under a rule of several codecs the plan has for
// each boundary the most exact one that hides its messages as well as any of them.
type CodecRule struct {
	// widest is the most exact codec, narrowest the one of the fewest bits; zero is F32.
	widest, narrowest Codec
}

// autoCodec is the text of the rule that allows every codec; behind a colon it may have the
// narrowest one.
const autoCodec = "auto"

// CodecRules are the texts of the rules, the default first.
func CodecRules() []string {
	names := CodecNames()
	rules := append(names, autoCodec)
	for _, name := range names[1 : len(names)-1] {
		rules = append(rules, autoCodec+":"+name)
	}
	return rules
}

// ParseCodecRule reads a rule: a codec for all boundaries, `auto`, or `auto:bf16` for a
// choice that goes no further than to that one. The error wraps ErrBadInput.
func ParseCodecRule(text string) (CodecRule, error) {
	name, auto := strings.CutPrefix(text, autoCodec)
	if auto && name == "" {
		return CodecRule{CodecF32, CodecInt8}, nil
	}
	if auto {
		name, _ = strings.CutPrefix(name, ":")
	}
	codec, err := ParseCodec(name)
	rule := CodecRule{codec, codec}
	if auto {
		rule.widest = CodecF32
	}
	if err != nil || rule.String() != text && text != CodecF32.String() {
		return CodecRule{}, fmt.Errorf("%w: codec %.20q, want one of %s", ErrBadInput, text, strings.Join(CodecRules(), ", "))
	}
	if codec == CodecF32 {
		return CodecRule{}, nil
	}
	return rule, nil
}

// bounds are the most exact codec that the rule allows and the one of the fewest bits.
func (r CodecRule) Bounds() (widest, narrowest Codec) {
	return max(r.widest, CodecF32), max(r.narrowest, CodecF32)
}

func (r CodecRule) String() string {
	widest, narrowest := r.Bounds()
	switch {
	case widest == narrowest:
		return widest.String()
	case narrowest == CodecInt8:
		return autoCodec
	}
	return autoCodec + ":" + narrowest.String()
}

// MarshalText is the rule's text.
func (r CodecRule) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads a rule's text.
func (r *CodecRule) UnmarshalText(text []byte) (err error) {
	*r, err = ParseCodecRule(string(text))
	return err
}

// Rounds tells whether replica 0 of a plan, which evaluates the model, has something else than float32
// in a stage or between two workers: then its held-out loss is not that of float32 throughout.
func (t TrainSpec) Rounds(p Plan) bool {
	return t.Storage.Rounds(p) || len(p.Replicas) > 0 && p.Replicas[0].coded()
}

// coded tells whether a codec changes what crosses a boundary.
func (p Pipeline) coded() bool {
	for s, place := range p.Stages[:max(0, len(p.Stages)-1)] {
		if place.Codec != "" && place.Codec != CodecF32.String() && place.Worker() != p.Stages[s+1].Worker() {
			return true
		}
	}
	return false
}

// codecs are by boundary those of a pipeline, F32 where the plan says nothing.
func (p Pipeline) Codecs() ([]Codec, error) {
	codecs := make([]Codec, 0, len(p.Stages))
	for s, place := range p.Stages[:len(p.Stages)-1] {
		codec := CodecF32
		if place.Codec != "" {
			var err error
			if codec, err = ParseCodec(place.Codec); err != nil {
				return nil, fmt.Errorf("%w: boundary behind stage %d: %w", ErrBadPlan, s, err)
			}
		}
		codecs = append(codecs, codec)
	}
	return codecs, nil
}
