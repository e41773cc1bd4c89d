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
)

// Kinds lists all kinds.
var Kinds = []Kind{Kill, Pause, Leave, Join, Wipe, Rot}

// ErrOptions is wrapped by errors about options.
var ErrOptions = errors.New("chaos: bad options")

// Fault is one entry of a schedule.
type Fault struct {
	// At is the earliest time after the quiet start.
	At   time.Duration `json:"at"`
	Kind Kind          `json:"kind"`
	// Node is the number of the node; that of a node that joins follows the others'.
	Node int `json:"node"`
	// Away is how long the node is away, or the joined one stays.
	Away time.Duration `json:"away"`
	// Draw chooses what is damaged.
	Draw uint64 `json:"draw"`
}

// spared reports whether a kind is not for the founder, whose folder holds the key of the run's owner.
func (k Kind) spared() bool { return k == Wipe || k == Rot }

// Schedule returns the faults of a seed within a time, one every so often: the distance of two is between half and one and a
// half of that.
func Schedule(seed uint64, nodes int, within, every time.Duration, kinds []Kind) (faults []Fault) {
	draw := rand.New(rand.NewPCG(seed, 0))
	between := func(low, high time.Duration) time.Duration {
		return low + time.Duration(draw.Int64N(int64(high-low)+1)).Round(time.Millisecond)
	}
	for at := between(0, every/2); at < within; at += between(every/2, every*3/2) {
		f := Fault{At: at, Kind: kinds[draw.IntN(len(kinds))], Node: draw.IntN(nodes), Away: between(time.Second, 8*time.Second), Draw: draw.Uint64()}
		switch {
		case f.Kind == Join:
			f.Node, f.Away = nodes, f.Away+8*time.Second
		case f.Kind.spared():
			f.Node = 1 + int(f.Draw%uint64(nodes-1))
		}
		faults = append(faults, f)
	}
	return faults
}

// ParseKinds reads names of kinds; none stands for all.
func ParseKinds(names []string) (kinds []Kind, err error) {
	for _, name := range names {
		if !slices.Contains(Kinds, Kind(name)) {
			return nil, fmt.Errorf("%w: fault %q: want some of %v", ErrOptions, name, Kinds)
		}
		kinds = append(kinds, Kind(name))
	}
	if len(kinds) == 0 {
		return Kinds, nil
	}
	return kinds, nil
}
