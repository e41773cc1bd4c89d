package planner

import (
	"fmt"
	"strings"

	"pnode/planner/cost"
	"pnode/planner/elastic"
)

// CodecRule says in which codecs boundary tensors may travel between stages. The zero value
// is F32 everywhere, which changes no loss. Under a rule of several codecs the plan has for
// each boundary the most exact one that hides its messages as well as any of them.
type CodecRule struct {
	// widest is the most exact codec, narrowest the one of the fewest bits; zero is F32.
	widest, narrowest cost.Codec
}

// autoCodec is the text of the rule that allows every codec; behind a colon it may have the
// narrowest one.
const autoCodec = "auto"

// CodecRules are the texts of the rules, the default first.
func CodecRules() []string {
	names := cost.CodecNames()
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
		return CodecRule{cost.F32, cost.Int8}, nil
	}
	if auto {
		name, _ = strings.CutPrefix(name, ":")
	}
	codec, err := cost.ParseCodec(name)
	rule := CodecRule{codec, codec}
	if auto {
		rule.widest = cost.F32
	}
	if err != nil || rule.String() != text && text != cost.F32.String() {
		return CodecRule{}, fmt.Errorf("%w: codec %.20q, want one of %s", ErrBadInput, text, strings.Join(CodecRules(), ", "))
	}
	if codec == cost.F32 {
		return CodecRule{}, nil
	}
	return rule, nil
}

// bounds are the most exact codec that the rule allows and the one of the fewest bits.
func (r CodecRule) bounds() (widest, narrowest cost.Codec) {
	return max(r.widest, cost.F32), max(r.narrowest, cost.F32)
}

func (r CodecRule) String() string {
	widest, narrowest := r.bounds()
	switch {
	case widest == narrowest:
		return widest.String()
	case narrowest == cost.Int8:
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

// widen takes the most exact codecs that hide messages as well for a candidate.
func (c *cluster) widen(k *candidate) error {
	widest, narrowest := c.in.Run.codecBounds()
	if widest == narrowest {
		return nil
	}
	var err error
	if k.layout != nil {
		err = c.site.Widen(k.layout, widest, narrowest)
	} else {
		err = k.widenPipes()
	}
	if err == nil {
		err = c.estimate(k)
	}
	if err != nil {
		return err
	}
	return k.simulate()
}

// widenPipes is that of a candidate without a layout.
func (k *candidate) widenPipes() (err error) {
	for i, p := range k.pipes {
		wide := *p
		if wide.Decision, err = elastic.Widen(p.problem, p.Decision); err != nil {
			return err
		}
		k.pipes[i] = &wide
	}
	return nil
}

// Rounds tells whether replica 0 of a plan, which evaluates the model, has something else than float32
// in a stage or between two workers: then its held-out loss is not that of float32 throughout.
func (t TrainSpec) Rounds(p Plan) bool {
	return t.Storage.Rounds(p) || len(p.Replicas) > 0 && p.Replicas[0].coded()
}

// coded tells whether a codec changes what crosses a boundary.
func (p Pipeline) coded() bool {
	for s, place := range p.Stages[:max(0, len(p.Stages)-1)] {
		if place.Codec != "" && place.Codec != cost.F32.String() && place.Seat() != p.Stages[s+1].Seat() {
			return true
		}
	}
	return false
}

// codecs are by boundary those of a pipeline, F32 where the plan says nothing.
func (p Pipeline) codecs() ([]cost.Codec, error) {
	codecs := make([]cost.Codec, 0, len(p.Stages))
	for s, place := range p.Stages[:len(p.Stages)-1] {
		codec := cost.F32
		if place.Codec != "" {
			var err error
			if codec, err = cost.ParseCodec(place.Codec); err != nil {
				return nil, fmt.Errorf("%w: boundary behind stage %d: %w", ErrBadPlan, s, err)
			}
		}
		codecs = append(codecs, codec)
	}
	return codecs, nil
}
