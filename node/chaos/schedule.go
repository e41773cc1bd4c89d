package chaos

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Kind says what is done to a node.
type Kind string

// The kinds of faults.
const (
	// Kill ends the process at once; it is started again.
	Kill Kind = "kill"
	// Pause stops the process for a while, as a machine that sleeps.
	Pause Kind = "pause"
	// Leave asks the process to hand over and end; it comes back.
	Leave Kind = "leave"
	// Join has another node join, which leaves again.
	Join Kind = "join"
	// Wipe ends the process at once and deletes its folder; the machine joins anew.
	Wipe Kind = "wipe"
	// Rot ends the process at once and flips bits in a file of its store; it is started again.
	Rot Kind = "rot"
	// Cut parts the node's line from all others, without a word to either side.
	Cut Kind = "cut"
	// OneWay loses all that the node sends to one other.
	OneWay Kind = "oneway"
	// Slow makes the node's line 10 times narrower, or stops its process half of the time.
	Slow Kind = "slow"
	// Notice says, as a cloud does, that the node's machine will be taken away; it hands over, ends, and comes back.
	Notice Kind = "notice"
	// Full leaves no room on the node's disk.
	Full Kind = "full"
)

// Kinds lists all kinds.
var Kinds = []Kind{Kill, Pause, Leave, Join, Wipe, Rot, Cut, OneWay, Slow, Notice, Full}

// leastLong is added to the time of kinds that last longer.
const leastLong = 8 * time.Second

// ErrOptions is wrapped by errors about options.
var ErrOptions = errors.New("chaos: bad options")

// Fault is one entry of a schedule.
type Fault struct {
	// At is the earliest time after the quiet start.
	At   time.Duration `json:"at"`
	Kind Kind          `json:"kind"`
	// Node is the number of the node; that of a node that joins follows the others'.
	Node int `json:"node"`
	// To is the node that hears nothing from Node in a OneWay.
	To int `json:"to"`
	// Away is how long the node is away, or the joined one stays. Of one that hands over first it counts from its end.
	Away time.Duration `json:"away"`
	// Draw chooses what is damaged, and how a node is slow.
	Draw uint64 `json:"draw"`
}

// String names the fault and its nodes.
func (f Fault) String() string {
	if f.Kind == OneWay {
		return fmt.Sprintf("%s from node %d to node %d", f.Kind, f.Node, f.To)
	}
	return fmt.Sprintf("%s of node %d", f.Kind, f.Node)
}

// involves reports whether the node takes part in the fault.
func (f Fault) involves(node int) bool { return f.Node == node || f.Kind == OneWay && f.To == node }

// spared reports whether a kind is not for the founder, whose folder holds the key of the run's owner.
func (k Kind) spared() bool { return k == Wipe || k == Rot }

// needsLines reports whether a kind is one of the network.
func (k Kind) needsLines() bool { return k == Cut || k == OneWay }

// needsDisk reports whether a kind is one of a disk that the node has for itself.
func (k Kind) needsDisk() bool { return k == Full }

// isLong reports whether a kind leaves its node at work, so that it lasts longer.
func (k Kind) isLong() bool { return k == Join || k == Slow }

// Schedule returns the faults of a seed within a time, one every so often: the distance of two is between half and one and a
// half of that. No node is away for longer than the longest time, and joined and slow ones are for leastLong more.
func Schedule(seed uint64, nodes int, within, every, longest time.Duration, kinds []Kind) (faults []Fault) {
	draw := rand.New(rand.NewPCG(seed, 0))
	between := func(low, high time.Duration) time.Duration {
		return low + time.Duration(draw.Int64N(int64(high-low)+1)).Round(time.Millisecond)
	}
	for at := between(0, every/2); at < within; at += between(every/2, every*3/2) {
		f := Fault{At: at, Kind: kinds[draw.IntN(len(kinds))], Node: draw.IntN(nodes), Away: between(time.Second, longest), Draw: draw.Uint64()}
		if f.Kind.isLong() {
			f.Away += leastLong
		}
		other := 1 + int(f.Draw%uint64(nodes-1))
		switch {
		case f.Kind == Join:
			f.Node = nodes
		case f.Kind == OneWay:
			f.To = (f.Node + other) % nodes
		case f.Kind.spared():
			f.Node = other
		}
		faults = append(faults, f)
	}
	return faults
}

// ParseKinds reads names of kinds; none stands for all that the network can have.
func ParseKinds(names []string) (kinds []Kind, err error) {
	for _, name := range names {
		if !slices.Contains(Kinds, Kind(name)) {
			return nil, fmt.Errorf("%w: fault %q: want some of %v", ErrOptions, name, Kinds)
		}
		kinds = append(kinds, Kind(name))
	}
	return kinds, nil
}

// possible returns the kinds that are asked for, or with none all that this network can have. The error wraps ErrOptions.
func possible(kinds []Kind, n network) (all []Kind, err error) {
	for _, k := range kinds {
		if why := n.lacks(k); why != "" {
			return nil, fmt.Errorf("%w: fault %q: %s", ErrOptions, k, why)
		}
	}
	if len(kinds) > 0 {
		return kinds, nil
	}
	return slices.DeleteFunc(slices.Clone(Kinds), func(k Kind) bool { return n.lacks(k) != "" }), nil
}
