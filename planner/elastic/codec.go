package elastic

import (
	"cmp"
	"slices"

	"pnode/pipeline/schedule"
)

// Codec is how a boundary's tensors travel, the widest first.
type Codec uint8

// The codecs, by the bits that an element takes.
const (
	F32 Codec = iota
	BF16
	// Int8 has one scale for each group of elements.
	Int8
	codecs
)

// int8Group is how many elements of Int8 share a float32 scale.
const int8Group = 128

var codecNames = [codecs]string{"f32", "bf16", "int8"}

func (c Codec) String() string {
	if c >= codecs {
		return "invalid"
	}
	return codecNames[c]
}

// ParseCodec is the codec of that name.
func ParseCodec(name string) (Codec, bool) {
	i := slices.Index(codecNames[:], name)
	return Codec(max(i, 0)), i >= 0
}

// Bytes is the size of a message of so many elements.
func (c Codec) Bytes(elements int64) int64 {
	switch c {
	case BF16:
		return 2 * elements
	case Int8:
		return elements + 4*((elements+int8Group-1)/int8Group)
	default:
		return 4 * elements
	}
}

// narrow sends fewer bits over boundaries whose messages are exposed: as long as the
// period is longer than the slowest stage computes, the longest transfer of those that set
// it gets the next codec. Then every boundary goes back to the widest codec that costs
// nothing.
func (p Problem) narrow(d Decision) (Decision, error) {
	for d.Period > d.busiest() {
		i, ok := p.exposed(d)
		if !ok {
			break
		}
		using := slices.Clone(d.Codecs)
		using[i]++
		next, err := p.solve(using)
		if err != nil {
			return Decision{}, err
		}
		d = next
	}
	for i := range d.Codecs {
		for wider := F32; wider < d.Codecs[i]; wider++ {
			using := slices.Clone(d.Codecs)
			using[i] = wider
			if next, err := p.solve(using); err == nil && next.Period <= d.Period {
				d = next
			}
		}
	}
	return d, nil
}

// exposed is the boundary with the longest transfer among those that set the period and
// may use a narrower codec.
func (p Problem) exposed(d Decision) (boundary int, ok bool) {
	var candidates []int
	for i := int(d.Bound.From); i < int(d.Bound.To); i++ {
		if d.Codecs[i] < p.Narrowest {
			candidates = append(candidates, i)
		}
	}
	if len(candidates) == 0 {
		return 0, false
	}
	return slices.MaxFunc(candidates, func(a, b int) int {
		return cmp.Or(cmp.Compare(transfer(d.Costs.Boundaries[a]), transfer(d.Costs.Boundaries[b])), cmp.Compare(b, a))
	}), true
}

func transfer(b schedule.Boundary) schedule.Nanos {
	return max(b.Activation.Transfer, b.Gradient.Transfer)
}

// busiest is what the slowest stage computes for a micro-batch.
func (d Decision) busiest() schedule.Nanos {
	var most schedule.Nanos
	for _, s := range d.Costs.Stages {
		most = max(most, s.Micro()+s.Recompute)
	}
	return most
}
