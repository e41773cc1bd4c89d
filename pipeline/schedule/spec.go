package schedule

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Spec names a schedule: a kind and the kind's numbers. With a Group it says the whole
// schedule, so that nodes which agree on a few bytes agree on every action. Its text form
// is `gpipe`, `kfkb:k=3` or `interleaved:v=2,f=8+4,b=6+6`.
type Spec struct {
	Kind string
	// Params are in the kind's order; those that have their default value are left out.
	Params []Param
}

// Param is one named list of numbers, most often of one.
type Param struct {
	Name   string
	Values []int
}

// Bounds of a Spec's text form.
const (
	MaxSpecBytes  = 1 << 10
	maxSpecValues = 256
)

// ErrBadSpec is wrapped by every error about text that names no schedule.
var ErrBadSpec = errors.New("schedule: unknown schedule")

// Group is what a Spec is built for: consecutive replicas that share the same workers, one
// replica unless the kind says otherwise.
type Group struct {
	First  Replica
	Stages int // of each replica
	Shares []Share
	// Warmups are by stage the forwards before the first backward; 1f1b alone has them.
	Warmups []int
}

// Share is one replica's contiguous part of the step's micro-batches.
type Share struct {
	First  Micro
	Micros int
}

// shape is the group's only replica.
func (g Group) shape() Shape {
	return Shape{Replica: g.First, Stages: g.Stages, FirstMicro: g.Shares[0].First, Micros: g.Shares[0].Micros}
}

// kind is what a Spec's name stands for.
type kind struct {
	name   string
	params []string // the names of its parameters, in the order of the text form
	// replicas is how many replicas a group has; nil: one.
	replicas func(Spec) int
	// chunks is how many stages of each replica a worker holds; nil: one.
	chunks func(Spec) int
	// build orders forwards and backwards alone: passes add the rest. What a worker
	// holds follows from its actions.
	build func(Spec, Group) (Schedule, error)
}

// kinds are all schedules that have a name.
var kinds = []kind{
	{name: "1f1b", build: func(_ Spec, g Group) (Schedule, error) { return Warmups(g.shape(), g.Warmups) }},
	{name: "gpipe", build: func(_ Spec, g Group) (Schedule, error) { return GPipe(g.shape()) }},
}

// Kinds are the names of all kinds.
func Kinds() []string {
	var names []string
	for _, k := range kinds {
		names = append(names, k.name)
	}
	return names
}

// Replicas is how many replicas a group of this schedule has: they share its workers.
func (s Spec) Replicas() int {
	if k, ok := s.kind(); ok && k.replicas != nil {
		return k.replicas(s)
	}
	return 1
}

// Chunks is how many stages of each replica one worker holds.
func (s Spec) Chunks() int {
	if k, ok := s.kind(); ok && k.chunks != nil {
		return k.chunks(s)
	}
	return 1
}

// Build orders a group's forwards and backwards, without sends, reductions and steps. The
// error wraps ErrBadSpec or ErrBadShape and says what does not fit.
func (s Spec) Build(g Group) (Schedule, error) {
	k, ok := s.kind()
	if !ok {
		return Schedule{}, fmt.Errorf("%w: %q, known are %s", ErrBadSpec, s.Kind, strings.Join(Kinds(), ", "))
	}
	if n := s.Replicas(); len(g.Shares) != n {
		return Schedule{}, fmt.Errorf("%w: %s takes its replicas %d at a time, not %d", ErrBadShape, s, n, len(g.Shares))
	}
	out, err := k.build(s, g)
	if err != nil {
		return Schedule{}, fmt.Errorf("%s: %w", s, err)
	}
	return out, nil
}

func (s Spec) kind() (kind, bool) {
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == s.Kind })
	if i < 0 {
		return kind{}, false
	}
	return kinds[i], true
}

// Values are those of a parameter, nil where it is not given.
func (s Spec) Values(name string) []int {
	for _, p := range s.Params {
		if p.Name == name {
			return p.Values
		}
	}
	return nil
}

// Int is the first value of a parameter, or what it is where it is not given.
func (s Spec) Int(name string, otherwise int) int {
	if v := s.Values(name); len(v) > 0 {
		return v[0]
	}
	return otherwise
}

// String is the text form.
func (s Spec) String() string {
	b := []byte(s.Kind)
	for i, p := range s.Params {
		b = append(b, ":,"[min(i, 1)])
		b = append(append(b, p.Name...), '=')
		for j, v := range p.Values {
			if j > 0 {
				b = append(b, '+')
			}
			b = strconv.AppendInt(b, int64(v), 10)
		}
	}
	return string(b)
}

// ParseSpec reads the text form. It accepts canonical text of a known kind with parameters
// of that kind only; whether they fit a Group is Build's to say.
func ParseSpec(text string) (Spec, error) {
	if len(text) > MaxSpecBytes {
		return Spec{}, fmt.Errorf("%w: a name of %d bytes, at most %d are accepted", ErrBadSpec, len(text), MaxSpecBytes)
	}
	name, rest, has := strings.Cut(text, ":")
	s := Spec{Kind: name}
	k, ok := s.kind()
	if !ok {
		return Spec{}, fmt.Errorf("%w: %q, known are %s", ErrBadSpec, name, strings.Join(Kinds(), ", "))
	}
	if has {
		for part := range strings.SplitSeq(rest, ",") {
			p, err := k.parseParam(part)
			if err != nil {
				return Spec{}, err
			}
			s.Params = append(s.Params, p)
		}
	}
	if !k.ordered(s.Params) {
		return Spec{}, fmt.Errorf("%w: %q, want each of the parameters %s at most once and in this order", ErrBadSpec, text, strings.Join(k.params, ", "))
	}
	return s, nil
}

func (k kind) parseParam(text string) (Param, error) {
	name, list, _ := strings.Cut(text, "=")
	if !slices.Contains(k.params, name) {
		return Param{}, fmt.Errorf("%w: %s has no parameter %q, it takes [%s]", ErrBadSpec, k.name, name, strings.Join(k.params, " "))
	}
	p := Param{Name: name}
	for word := range strings.SplitSeq(list, "+") {
		n, rest, ok := cutNumber(word)
		if !ok || rest != "" || len(p.Values) == maxSpecValues {
			return Param{}, fmt.Errorf("%w: %s of %s is %q, want numbers up to %d joined by +, at most %d of them", ErrBadSpec, name, k.name, list, MaxNumber, maxSpecValues)
		}
		p.Values = append(p.Values, n)
	}
	return p, nil
}

// ordered tells whether the parameters come in the kind's order, none twice.
func (k kind) ordered(params []Param) bool {
	next := 0
	for _, p := range params {
		i := slices.Index(k.params, p.Name)
		if i < next {
			return false
		}
		next = i + 1
	}
	return true
}

// Holder is the worker that computes a stage, -1 for none.
func (s Schedule) Holder(r Replica, st Stage) int {
	return slices.IndexFunc(s.Workers, func(actions []Action) bool {
		return slices.ContainsFunc(actions, func(a Action) bool { return a.Op == Forward && a.Replica == r && a.Stage == st })
	})
}
