package planner

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"pnode/pipeline/schedule"
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
	if k.layout != nil {
		return c.widenLayout(k)
	}
	for i, p := range k.pipes {
		wide := *p
		var err error
		if wide.Decision, err = elastic.Widen(p.problem, p.Decision); err != nil {
			return err
		}
		k.pipes[i] = &wide
	}
	if err := c.estimate(k); err != nil {
		return err
	}
	return k.simulate()
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

// widenLayout takes the most exact codecs that do not lengthen the step, as elastic.Widen does
// for a period.
func (c *cluster) widenLayout(k *candidate) error {
	l := k.layout
	most := l.end + l.end*elastic.ExposedPercent/100
	l.exposed = map[[2]int]schedule.Nanos{}
	for _, at := range c.fastestFirst(l) {
		if err := c.widenBoundary(l, at, most); err != nil {
			return err
		}
	}
	if err := c.timeLayout(l); err != nil {
		return err
	}
	if err := c.estimate(k); err != nil {
		return err
	}
	return k.simulate()
}

// widenBoundary gives a boundary (replica, stage before) the most exact codec with which the
// layout ends in time.
func (c *cluster) widenBoundary(l *layout, at [2]int, most schedule.Nanos) error {
	widest, narrowest := c.in.Run.codecBounds()
	codec := &l.codecs[at[0]][at[1]]
	for *codec = widest; *codec < narrowest; *codec++ {
		if err := c.timeLayout(l); err != nil {
			return err
		}
		if l.end <= most {
			return nil
		}
		l.exposed[at] = l.end
	}
	return nil
}

// fastestFirst are the boundaries (replica, stage before) by what a message takes.
func (c *cluster) fastestFirst(l *layout) (order [][2]int) {
	transfers := map[[2]int]schedule.Nanos{}
	for r, costs := range c.timing(l).Replicas {
		for b, boundary := range costs.Boundaries {
			at := [2]int{r, b}
			order, transfers[at] = append(order, at), max(boundary.Activation.Transfer, boundary.Gradient.Transfer)
		}
	}
	slices.SortStableFunc(order, func(a, b [2]int) int { return cmp.Compare(transfers[a], transfers[b]) })
	return order
}
