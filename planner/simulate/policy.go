package simulate

import (
	"fmt"
	"slices"
	"strings"

	"pnode/planner/holders"
)

// Policy answers what happens to machines, as one system does. All of them follow the same plans.
type Policy interface {
	// Name is how people call it.
	Name() string
	// Habits returns what it does all the time.
	Habits(c Constants, f Facts) Habits
	// Saves says how often the state is saved, and what that costs.
	Saves(c Constants, f Facts, losses holders.Rate) Saving
	// Lost answers the loss of machines with a part in the plan.
	Lost(c Constants, l Loss) Answer
	// Change returns how long steps stop for another plan.
	Change(c Constants, f Facts, moveNanos int64) int64
}

// Habits say what a policy does all the time.
type Habits struct {
	// UsefulPermille is which share of a step's time computes what is needed without losses, in thousandths: a step takes so
	// much longer.
	UsefulPermille int64
	// HeedsNotices reports whether a machine that is told that it will go hands over before.
	HeedsNotices bool
}

// Facts describe the plan that runs.
type Facts struct {
	StepNanos, CopyNanos, SaveBytes int64
	// PassNanos is how long a machine computes at most before it looks up: a micro-batch through all that it has.
	PassNanos int64
	// LoadNanos is how long the machine with the largest state takes to get it over its line.
	LoadNanos int64
	// ForwardPermille is which share of the work forwards are, in thousandths.
	ForwardPermille int64
}

// Saving says when state is saved: EveryNanos after the last time, or after so many steps. Steps stop for StopNanos, and the
// checkpoint counts after TookNanos more. AtChange reports that each change of plan makes one as well.
type Saving struct {
	EveryNanos, EverySteps, StopNanos, TookNanos int64
	AtChange                                     bool
}

// Loss describes machines that are lost together, at least one of them with a part in the plan.
type Loss struct {
	Facts
	// Of counts the machines of the plan. Machines counts those of them that are lost. Neighbours reports that two of them were next to each other.
	Of, Machines int
	Neighbours   bool
	// InStep reports that a step was under way, for ElapsedNanos by now.
	InStep       bool
	ElapsedNanos int64
	// Carried reports that somebody does a lost machine's part of this step already.
	Carried bool
	// BusyNanos is how long the lost ones compute in a step at most, DonorNanos how long the machine does that could go on
	// in the only one's place from the state in its memory; Donor reports whether there is one.
	BusyNanos, DonorNanos int64
	Donor                 bool
	// InMemory reports that the living have all layers in memory, Stored that they have the newest checkpoint of those that
	// they have not. Since counts the steps that were done since that checkpoint.
	InMemory, Stored bool
	Since            int64
	// Whole reports that states are not kept in parts, so that one machine can go on in another's place.
	Whole bool
}

// Answer says what follows a loss.
type Answer struct {
	// Extends is by how much the step that is under way takes longer. With Ends it is given up instead, and steps stop for
	// StopNanos before the next plan's own time.
	Extends, StopNanos int64
	Ends               bool
	// Back has the run go back to its newest checkpoint, Older to the one before, which the owner has.
	Back, Older bool
}

// Policies lists all policies.
var Policies = []Policy{pnode{}, templates{}, checkpointRestart{}, redundant{}}

// PoliciesNamed returns the policies of a list of names, all of them for "all". Errors wrap ErrOptions.
func PoliciesNamed(names []string) (chosen []Policy, err error) {
	var known []string
	for _, p := range Policies {
		known = append(known, p.Name())
	}
	for _, name := range names {
		if name == "all" {
			return Policies, nil
		}
		i := slices.Index(known, name)
		if i < 0 {
			return nil, fmt.Errorf("%w: policy %q: want all, or some of %s", ErrOptions, name, strings.Join(known, ", "))
		}
		if !slices.Contains(chosen, Policies[i]) {
			chosen = append(chosen, Policies[i])
		}
	}
	return chosen, nil
}

// ConstantsNamed returns a set of constants. Errors wrap ErrOptions.
func ConstantsNamed(name string) (Constants, error) {
	var known []string
	for _, c := range ConstantsSets {
		if c.Name == name {
			return c, nil
		}
		known = append(known, c.Name)
	}
	return Constants{}, fmt.Errorf("%w: constants %q: want %s", ErrOptions, name, strings.Join(known, " or "))
}

// change is how long a change of plan takes besides the state that is saved and moved.
func (c Constants) change() int64 { return c.AgreedNanos + c.PlannedNanos + c.LoadedNanos }

// save returns how long a machine takes until others can read so many bytes of its state.
func (c Constants) save(bytes int64) int64 { return atLeast(c.SavedNanos, bytes, c.SaveBytesPerS) }

// store returns how long a machine takes until so many bytes of its state are on its disk.
func (c Constants) store(bytes int64) int64 { return atLeast(c.StoredNanos, bytes, c.DiskBytesPerS) }

// atLeast returns how long bytes take at a rate, and no less than some time; that alone where there is no rate.
func atLeast(nanos, bytes, bytesPerS int64) int64 {
	if bytesPerS == 0 {
		return nanos
	}
	return max(nanos, timeOf(bytes, bytesPerS))
}

// move returns what the time for state on lines counts.
func (c Constants) move(nanos int64) int64 {
	if c.MovesFree {
		return 0
	}
	return nanos
}

// given returns what giving up a step costs more than the time that went into it.
func (c Constants) given(l Loss) int64 {
	if !c.WholeStep || !l.InStep {
		return 0
	}
	return max(0, l.StepNanos-l.ElapsedNanos)
}
