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

// Param is one named list of numbers, most often of one, or of orders.
type Param struct {
	Name   string
	Values []int
	// Orders are those of the parameter order, which has no Values.
	Orders []StageOrder
}

// Bounds of a Spec's text form.
const (
	MaxSpecBytes  = 1 << 10
	maxSpecValues = 256
)

// ErrBadSpec is wrapped by every error about text that names no schedule.
var ErrBadSpec = errors.New("schedule: unknown schedule")

// Group describes the replicas that a Spec is built for: consecutive ones that share the same workers, one
// replica unless the kind says otherwise.
type Group struct {
	First  Replica
	Stages int // of each replica
	Shares []Share
	// Warmups are by stage the forwards before the first backward; 1f1b alone has them, and
	// its own number where they are nil.
	Warmups []int
}

// Share is one replica's contiguous part of the step's micro-batches.
type Share struct {
	First  Micro
	Micros int
}

// options returns the request to the spec's generator for the group.
func (s Spec) options(g Group) Options {
	o := Options{
		Shape:  Shape{Replica: g.First, Stages: g.Stages, FirstMicro: g.Shares[0].First},
		Shares: g.Shares, Warmups: g.Warmups,
	}
	for _, share := range g.Shares {
		o.Micros += share.Micros
	}
	s.Set(&o)
	return o
}

// Set returns the options that the spec names their values.
func (s Spec) Set(o *Options) {
	for _, p := range s.Params {
		switch one, several := o.named(p.Name); {
		case one != nil:
			*one = p.Values[0]
		case several != nil:
			*several = p.Values
		default:
			o.Orders = p.Orders
		}
	}
}

// Spec is the name of the kind with these options.
func (k Kind) Spec(o Options) Spec {
	s := Spec{Kind: k.Name}
	for _, name := range k.Params {
		switch one, several := o.named(name); {
		case one != nil && *one != 0:
			s.Params = append(s.Params, Param{Name: name, Values: []int{*one}})
		case several != nil && len(*several) > 0:
			s.Params = append(s.Params, Param{Name: name, Values: *several})
		case name == orderParam && len(o.Orders) > 0:
			s.Params = append(s.Params, Param{Name: name, Orders: o.Orders})
		}
	}
	return s
}

// Replicas is how many replicas a group of this schedule has: they share its workers.
func (s Spec) Replicas() int {
	k, _ := KindNamed(s.Kind)
	return k.Replicas(s.options(Group{Shares: []Share{{}}}))
}

// Chunks is how many stages of each replica one worker holds.
func (s Spec) Chunks() int {
	k, _ := KindNamed(s.Kind)
	return k.StagesPerWorker(s.options(Group{Shares: []Share{{}}}))
}

// Segments is into how many each sequence is cut; 1 is whole.
func (s Spec) Segments() int {
	k, _ := KindNamed(s.Kind)
	return k.Segments(s.options(Group{Shares: []Share{{}}}))
}

// Build orders a group's forwards and backwards, without sends, reductions and steps. The
// error wraps ErrBadSpec or ErrBadShape and says what does not fit.
func (s Spec) Build(g Group) (Schedule, error) {
	k, err := s.named()
	if err != nil {
		return Schedule{}, err
	}
	if n := s.Replicas(); len(g.Shares) != n {
		return Schedule{}, fmt.Errorf("%w: %s takes its replicas %d at a time, not %d", ErrBadShape, s, n, len(g.Shares))
	}
	out, err := k.Make(s.options(g))
	if err != nil {
		return Schedule{}, fmt.Errorf("%s: %w", s, err)
	}
	return out, nil
}

// named is the kind, unless there is none or its actions do not follow from a name.
func (s Spec) named() (Kind, error) {
	k, ok := KindNamed(s.Kind)
	if !ok || k.NeedsCosts {
		var names []string
		for _, known := range Kinds() {
			if !known.NeedsCosts {
				names = append(names, known.Name)
			}
		}
		return Kind{}, fmt.Errorf("%w %q: want one of %s", ErrBadSpec, s.Kind, strings.Join(names, ", "))
	}
	return k, nil
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
		for j, order := range p.Orders {
			if j > 0 {
				b = append(b, '+')
			}
			b = append(b, order...)
		}
	}
	return string(b)
}

// Short is the text form for people: without orders, which are long.
func (s Spec) Short() string {
	s.Params = slices.DeleteFunc(slices.Clone(s.Params), func(p Param) bool { return p.Orders != nil })
	return s.String()
}

// ParseSpec reads the text form. It accepts canonical text of a known kind with parameters
// of that kind only; whether they fit a Group is Build's to say.
func ParseSpec(text string) (Spec, error) {
	if len(text) > MaxSpecBytes {
		return Spec{}, fmt.Errorf("%w: a name of %d bytes, at most %d are accepted", ErrBadSpec, len(text), MaxSpecBytes)
	}
	name, rest, has := strings.Cut(text, ":")
	s := Spec{Kind: name}
	k, err := s.named()
	if err != nil {
		return Spec{}, err
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
		return Spec{}, fmt.Errorf("%w: %q, want each of the parameters %s at most once and in this order",
			ErrBadSpec, text, strings.Join(k.Params, ", "))
	}
	return s, nil
}

func (k Kind) parseParam(text string) (Param, error) {
	name, list, _ := strings.Cut(text, "=")
	if !slices.Contains(k.Params, name) {
		return Param{}, fmt.Errorf("%w: %s has no parameter %q, it takes [%s]", ErrBadSpec, k.Name, name, strings.Join(k.Params, " "))
	}
	p := Param{Name: name}
	if name == orderParam {
		for word := range strings.SplitSeq(list, "+") {
			if word == "" || strings.Trim(word, orderOps) != "" {
				return Param{}, fmt.Errorf("%w: %s of %s is %.60q, want an order of %s for each stage, joined by +", ErrBadSpec, name, k.Name, list, orderOps)
			}
			p.Orders = append(p.Orders, StageOrder(word))
		}
		return p, nil
	}
	for word := range strings.SplitSeq(list, "+") {
		n, rest, ok := cutNumber(word)
		if !ok || rest != "" || n == 0 || len(p.Values) == maxSpecValues {
			return Param{}, fmt.Errorf("%w: %s of %s is %q, want numbers from 1 to %d joined by +, at most %d of them",
				ErrBadSpec, name, k.Name, list, MaxNumber, maxSpecValues)
		}
		p.Values = append(p.Values, n)
	}
	if one, _ := (&Options{}).named(name); one != nil && len(p.Values) > 1 {
		return Param{}, fmt.Errorf("%w: %s of %s is %q, want one number", ErrBadSpec, name, k.Name, list)
	}
	return p, nil
}

// ordered reports whether the parameters come in the kind's order, none twice.
func (k Kind) ordered(params []Param) bool {
	next := 0
	for _, p := range params {
		i := slices.Index(k.Params, p.Name)
		if i < next {
			return false
		}
		next = i + 1
	}
	return true
}
