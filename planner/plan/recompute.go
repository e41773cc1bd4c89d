package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"pnode/pipeline/model"
)

// RecomputeRule says what blocks drop after the forward pass and compute again for the
// backward pass: less memory and more time for losses that are the same to the bit. The zero
// value lets the planner choose for each layer, from the memory of its device.
type RecomputeRule struct {
	fixed bool
	level model.Recompute
}

// autoRecompute is the text of the zero rule.
const autoRecompute = "auto"

// Recompute is the rule of one level for all layers.
func Recompute(level model.Recompute) RecomputeRule { return RecomputeRule{true, level} }

// RecomputeRules are the texts of all rules, the default first.
func RecomputeRules() []string { return append([]string{autoRecompute}, model.RecomputeNames()...) }

// ParseRecompute reads a rule; the error wraps model.ErrBadConfig.
func ParseRecompute(text string) (RecomputeRule, error) {
	if text == autoRecompute {
		return RecomputeRule{}, nil
	}
	level, err := model.ParseRecompute(text)
	return Recompute(level), err
}

// Level is that of all layers; not ok where the planner chooses.
func (r RecomputeRule) Level() (level model.Recompute, ok bool) { return r.level, r.fixed }

func (r RecomputeRule) String() string {
	if !r.fixed {
		return autoRecompute
	}
	return r.level.String()
}

// MarshalText is the rule's text.
func (r RecomputeRule) MarshalText() ([]byte, error) {
	if !r.fixed {
		return []byte(autoRecompute), nil
	}
	return r.level.MarshalText()
}

// UnmarshalText reads a rule's text.
func (r *RecomputeRule) UnmarshalText(text []byte) (err error) {
	*r, err = ParseRecompute(string(text))
	return err
}

// Of is by layer of a valid placement what the stage computes again.
func (r RecomputeRule) Of(p Placement) []model.Recompute {
	if r.fixed {
		return r.level.Uniform(p.Layers.Len())
	}
	levels, err := p.Recompute.Expand(p.Layers.Len())
	if err != nil {
		panic("planner: a placement that was not validated: " + err.Error())
	}
	return levels
}

// Levels are a stage's levels of recomputation by layer as text: runs of like layers joined
// by +, for example `block*2+outputs*9+none`. Empty is none for all.
type Levels string

// JoinLevels is the text of levels.
func JoinLevels(levels []model.Recompute) Levels {
	if !slices.ContainsFunc(levels, func(l model.Recompute) bool { return l != model.RecomputeNothing }) {
		return ""
	}
	var b []byte
	for from := 0; from < len(levels); {
		end := from + 1
		for end < len(levels) && levels[end] == levels[from] {
			end++
		}
		if from > 0 {
			b = append(b, '+')
		}
		b = append(b, levels[from].String()...)
		if end-from > 1 {
			b = strconv.AppendInt(append(b, '*'), int64(end-from), 10)
		}
		from = end
	}
	return Levels(b)
}

// Expand gives the levels of a stage of that many layers. It accepts only what JoinLevels
// writes; errors wrap ErrBadPlan.
func (l Levels) Expand(layers int) ([]model.Recompute, error) {
	bad := func() ([]model.Recompute, error) {
		return nil, fmt.Errorf("%w: %.60q is not what %d layers recompute: want for example block*2+none", ErrBadPlan, string(l), layers)
	}
	if l == "" {
		return model.RecomputeNothing.Uniform(layers), nil
	}
	levels := make([]model.Recompute, 0, layers)
	for part := range strings.SplitSeq(string(l), "+") {
		name, times, repeated := strings.Cut(part, "*")
		level, err := model.ParseRecompute(name)
		n := 1
		if repeated && err == nil {
			n, err = strconv.Atoi(times)
		}
		if err != nil || n < 1 || n > layers-len(levels) {
			return bad()
		}
		levels = append(levels, level.Uniform(n)...)
	}
	if len(levels) != layers || JoinLevels(levels) != l {
		return bad()
	}
	return levels, nil
}
