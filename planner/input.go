package planner

import (
	"cmp"
	"errors"
	"fmt"

	"pnode/pipeline/model"
	"pnode/planner/measure"
	"pnode/planner/plan"
	"pnode/planner/rounds"
)

// Sentinel errors of Make, besides those of package plan.
var (
	// ErrNotEnoughNodes is wrapped when more devices are asked for than there are.
	ErrNotEnoughNodes = errors.New("planner: not enough nodes")
	// ErrNoFit is wrapped when the model does not fit into the devices' memory.
	ErrNoFit = errors.New("planner: model does not fit")
)

// Member is a node that may be planned with.
type Member struct {
	Peer plan.PeerID
	// Name is the machine's, for people; empty: the end of the peer ID stands for it.
	Name    string
	Profile plan.Profile
	// Claim says for people how Profile differs from what the member claims; empty where it does not.
	Claim string
	// Draining members are about to leave: they get neither a stage nor a copy.
	Draining bool
	// Ties are what it may be lost together with, sorted: see package holders.
	Ties []string
	// Whole members keep the checkpoints with all layers anyway, as owners' nodes do.
	Whole bool
	// Apart are the members that copies of what it computes did not get to of late.
	Apart []plan.PeerID
}

// label returns how the node is called in reasons and errors.
func (m Member) label() string { return cmp.Or(m.Name, m.Peer.Short()) }

// Devices counts what the member could compute on: none where its profile cannot be.
func (m Member) Devices() (n int) {
	if m.Profile.Validate(m.Peer) != nil {
		return 0
	}
	for _, d := range m.Profile.Devices {
		if d.Usable() {
			n++
		}
	}
	return n
}

// What was measured of a run, for the planner's callers.
type (
	// Measured has what a running plan showed over some steps.
	Measured = measure.Steps
	// MeasuredStage is where a stage's step went.
	MeasuredStage = measure.Stage
	// MeasuredLink is one direction of a link while it carried a run's messages.
	MeasuredLink = measure.Link
	// Ratio says how long a device computes, in thousandths of what its profile says.
	Ratio = measure.Ratio
	// Ratios follows how long devices compute against what their profiles say, and Work is a device's part in a step.
	Ratios = measure.Ratios
	Work   = measure.Work
)

// WholeRatio says that a device computes as its profile does.
const WholeRatio = measure.WholeRatio

// SlowRow is how many slow steps in a row a member sees before it says that something became slower.
const SlowRow = measure.SlowRow

// DefaultLink is assumed, at best, where nobody measured.
var DefaultLink = measure.DefaultLink

// Median returns the middle of each figure of several samples of a plan, the oldest first: see [measure.Median].
func Median(samples []Measured) Measured { return measure.Median(samples) }

// Input is all that a plan depends on. The order of the members does not matter.
type Input struct {
	Run plan.RunSpec
	// Costs holds the model's layers for one micro-batch in float32 storage, HalfCosts in BF16 or F16
	// storage, which cost the same; nil where the run has neither.
	Costs, HalfCosts []model.LayerCost
	// NodeBytes is the memory of a node's process besides its stages.
	NodeBytes  int64
	Members    []Member
	Start      plan.Step
	Generation plan.Generation
	// Stream are the micro-batches that the run has not trained on (plan.Plan.Stream).
	Stream plan.Stream
	// Own are the states that replicas with local steps had for themselves at the start, in the order of replicas.
	Own []rounds.Own
	// Links is what steps that were run showed of links, newer than the members' profiles.
	Links []MeasuredLink
	// Ratios are the speeds of devices that steps showed to be others than their profiles say.
	Ratios []Ratio
	// Previous is the plan in force, nil for none: of nearly equal plans the one that
	// moves the least state from it is taken.
	Previous *plan.Plan
}

// Afresh returns the input of a plan that moves whatever it likes, and stores what the run has settled on.
func (in Input) Afresh() Input {
	if in.Previous != nil && in.Run.Train.Storage.Auto {
		in.Run.Train.Storage = plan.Storage(in.Previous.Storage())
	}
	in.Previous = nil
	return in
}

// InputOf returns the input of a run's first plan, without members.
func InputOf(run plan.RunSpec) Input {
	in := Input{Run: run, Costs: run.Costs(model.StorageF32), Generation: 1}
	if run.Train.Storage.Halves() {
		in.HalfCosts = run.Costs(model.StorageBF16)
	}
	return in
}

// Bounds of what is planned.
const (
	// MaxMembers bounds the members of a run.
	MaxMembers = 4096
	maxLayers  = 4096
	maxMicros  = 1 << 20
)

func (in Input) check() error {
	t := in.Run.Train
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: generation %d: %s", plan.ErrBadInput, in.Generation, fmt.Sprintf(format, args...))
	}
	switch layers := len(in.Costs); {
	case in.Generation == 0:
		return bad("generations count from 1")
	case layers < 1 || layers > maxLayers:
		return bad("a model of %d layers, want 1 to %d", layers, maxLayers)
	case len(in.Members) > MaxMembers:
		return bad("%d members, at most %d are planned", len(in.Members), MaxMembers)
	case t.Micros < 1 || t.Micros > maxMicros:
		return bad("%d micro-batches a step, want 1 to %d", t.Micros, maxMicros)
	case t.Replicas < 0 || t.Stages < 0:
		return bad("%d replicas of %d stages, want 0 (auto) or more", t.Replicas, t.Stages)
	case t.Replicas > t.Micros:
		return bad("%s for %d replicas: each replica needs at least one; raise the micro-batches or lower the replicas", plan.Count(t.Micros, "micro-batch"), t.Replicas)
	case t.SumGroups < 0 || t.SumGroups > t.Micros:
		return bad("%d sum groups, want 1 to %d, the micro-batches of a step (0: one each)", t.SumGroups, t.Micros)
	case t.Replicas > t.Sums().Groups:
		return bad("%s of micro-batches for %d replicas: each replica takes whole ones; raise sum_groups or lower the replicas", plan.Count(t.Sums().Groups, "group"), t.Replicas)
	case t.Stages > layers:
		return bad("%d stages for %d layers: each stage needs at least one; lower the stages", t.Stages, layers)
	}
	if n := len(in.HalfCosts); n != len(in.Costs) && (n > 0 || in.Run.Train.Storage.Always(model.StorageBF16, model.StorageF16)) {
		return bad("costs of %d layers in halves, want %d", n, len(in.Costs))
	}
	for _, costs := range [][]model.LayerCost{in.Costs, in.HalfCosts} {
		for l, k := range costs {
			if why := checkCost(k); why != "" {
				return bad("layer %d %s", l, why)
			}
		}
	}
	return nil
}

// checkCost returns what is wrong with a layer's cost, empty for nothing.
func checkCost(k model.LayerCost) string {
	const most = 1 << 48 // bytes of a layer; sums over maxLayers stay within 60 bits
	const mostCalls = 1 << 24
	if min(k.ForwardFLOPs, k.InputFLOPs, k.WeightFLOPs, k.ParamBytes, k.ParamBytes-k.FrozenBytes, k.FrozenBytes, k.CopyBytes, k.SavedBytes, k.BoundaryBytes, k.PassBytes-k.PassHalfBytes, k.PassHalfBytes, k.TableBytes) < 0 ||
		min(k.ForwardCalls, k.InputCalls, k.WeightCalls, k.SplitCalls) < 0 || max(k.ForwardCalls, k.InputCalls, k.WeightCalls, k.SplitCalls) > mostCalls ||
		max(k.ParamBytes, k.CopyBytes, k.SavedBytes, k.BoundaryBytes, k.PassBytes, k.TableBytes) > most {
		return fmt.Sprintf("costs %+v, want 0 or more, at most %d bytes and %d calls", k, int64(most), mostCalls)
	}
	if min(k.ForwardAttention, k.ForwardFLOPs-k.ForwardAttention, k.InputAttention, k.InputFLOPs-k.InputAttention) < 0 {
		return fmt.Sprintf("costs %+v, want the FLOPs of attention within those of the pass", k)
	}
	if min(k.ForwardElementwise, k.InputElementwise, k.WeightElementwise, k.ForwardFLOPs-k.ForwardAttention-k.ForwardElementwise,
		k.InputFLOPs-k.InputAttention-k.InputElementwise, k.WeightFLOPs-k.WeightElementwise) < 0 {
		return fmt.Sprintf("costs %+v, want the FLOPs that are bound by memory within the others of the pass", k)
	}
	for level, lean := range k.Lean {
		if min(lean.RecomputeElementwise, lean.RecomputeFLOPs-lean.RecomputeAttention-lean.RecomputeElementwise) < 0 {
			return fmt.Sprintf("costs %+v when it recomputes %v, want the FLOPs that are bound by memory within the others", lean, model.Recompute(level))
		}
		if min(lean.SavedBytes, lean.PassBytes, lean.RecomputeAttention, lean.RecomputeFLOPs-lean.RecomputeAttention) < 0 || lean.SavedBytes > k.SavedBytes || lean.PassBytes > most {
			return fmt.Sprintf("costs %+v when it recomputes %v, want 0 or more, and at most what it saves otherwise, %d bytes", lean, model.Recompute(level), k.SavedBytes)
		}
	}
	return ""
}
