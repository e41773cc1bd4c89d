package sharding

import (
	"cmp"
	"math/bits"
	"strings"

	"pnode/pipeline/schedule"
)

// Kind names what replicas can hold in parts.
type Kind uint8

// The kinds, in the order of ZeRO's stages.
const (
	OptimizerState Kind = iota
	Gradients
	Parameters
	Kinds
)

var kindNames = [Kinds]string{"optimizer state", "gradients", "parameters"}

func (k Kind) String() string { return kindNames[k] }

// Set is a bit for each kind.
type Set uint8

const all Set = 1<<Kinds - 1

// Of returns the set of some kinds.
func Of(kinds ...Kind) (s Set) {
	for _, k := range kinds {
		s |= 1 << k
	}
	return s
}

// Has reports whether a kind is in the set.
func (s Set) Has(k Kind) bool { return s>>k&1 == 1 }

// String lists the kinds, for people.
func (s Set) String() string {
	var names []string
	for k := range Kinds {
		if s.Has(k) {
			names = append(names, k.String())
		}
	}
	if n := len(names); n > 1 {
		return strings.Join(names[:n-1], ", ") + " and " + names[n-1]
	}
	return strings.Join(names, "")
}

// Stage is a range of layers on all replicas that hold them.
type Stage struct {
	// FreedBytes counts by kind what every holder frees at least with it in parts.
	FreedBytes [Kinds]int64
	// Groups counts the groups of a replica's micro-batches between which forwards and backwards
	// take turns: parameters and gradients are exchanged for each.
	Groups int
	// Exchange is the time of one reduce-scatter or all-gather of the layers on the slowest
	// link between holders, Window how long a step's passes hide exchanges.
	Exchange, Window schedule.Nanos
	// Site reports whether all holders are near each other.
	Site bool
}

// Exchanges counts a step's reduce-scatters and all-gathers. With nothing in parts gradients are
// summed for everybody, which is one of each; so it is with the optimizer state in parts,
// where updated parameters are gathered in place of gradients. Gradients in parts are reduced
// after each group's backwards, parameters gathered ahead of its forwards and its backwards.
func (s Stage) Exchanges(in Set) int {
	reduce, gather := 1, 1
	if in.Has(Gradients) {
		reduce = s.Groups
	}
	if in.Has(Parameters) {
		gather = 2 * s.Groups
	}
	return reduce + gather
}

// Cost returns by how much a set's exchanges make a step longer than nothing in parts does.
func (s Stage) Cost(in Set) schedule.Nanos {
	return max(0, schedule.Nanos(s.Exchanges(in)-s.Exchanges(0))*s.Exchange-s.Window)
}

// Freed returns what every holder frees at least with a set in parts.
func (s Stage) Freed(in Set) (bytes int64) {
	for k := range Kinds {
		if in.Has(k) {
			bytes += s.FreedBytes[k]
		}
	}
	return bytes
}

// Choose returns the set that frees so many bytes at the least cost; of equal ones the set of fewer
// exchanges, then of fewer kinds, then the earlier kinds. Parameters stay within a site, gradients
// there or on links that hide them. Where none frees that much it is the set that frees the most, and
// enough is false.
func (s Stage) Choose(bytes int64) (best Set, enough bool) {
	for in := range all + 1 {
		near := s.Site || !in.Has(Parameters) && (!in.Has(Gradients) || s.Cost(in) == 0)
		if near && s.compare(in, best, bytes) < 0 {
			best = in
		}
	}
	return best, s.Freed(best) >= bytes
}

// compare is negative where a is better than b for so many bytes.
func (s Stage) compare(a, b Set, bytes int64) int {
	return cmp.Or(
		cmp.Compare(min(s.Freed(b), bytes), min(s.Freed(a), bytes)),
		cmp.Compare(s.Cost(a), s.Cost(b)),
		cmp.Compare(s.Exchanges(a), s.Exchanges(b)),
		cmp.Compare(bits.OnesCount8(uint8(a)), bits.OnesCount8(uint8(b))),
		cmp.Compare(a, b),
	)
}
