package pipeline

import (
	"fmt"

	"pnode/pipeline/collective"
	"pnode/pipeline/gather"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// Expected returns what finds messages that a plan does not have one peer send to another: of another's stage, replica or
// layer, or larger than the plan's. Links ask it before they make room. Steps and schedules do not matter to it; its
// errors wrap those of wire.
func Expected(run plan.RunSpec, p plan.Plan) func(from, to plan.PeerID, t wire.Tag, bytes int) error {
	if p.Local != nil {
		return expectedApart(run, p)
	}
	return func(from, to plan.PeerID, t wire.Tag, bytes int) error {
		e := expectation{program{spec: run, plan: p}, to}
		return atMost(e.most(from, t), t, bytes)
	}
}

// atMost returns an error for a message of more bytes than most, and for any where that is nothing.
func atMost(most int, t wire.Tag, bytes int) error {
	switch {
	case most == nothing:
		return fmt.Errorf("%w: the plan has nobody send %v here from there", wire.ErrValue, t)
	case bytes > most:
		return fmt.Errorf("%w: %v of %d bytes, the plan has at most %d", wire.ErrLength, t, bytes, most)
	}
	return nil
}

// expectedApart is Expected for replicas with local steps, which send each other nothing within a step but the messages of a round.
func expectedApart(run plan.RunSpec, p plan.Plan) func(from, to plan.PeerID, t wire.Tag, bytes int) error {
	var alone []func(from, to plan.PeerID, t wire.Tag, bytes int) error
	for r := range p.Replicas {
		alone = append(alone, Expected(plan.Alone(run, p, plan.Replica(r))))
	}
	return func(from, to plan.PeerID, t wire.Tag, bytes int) error {
		if t.Replica < 0 || int(t.Replica) >= len(alone) {
			return fmt.Errorf("%w: the plan has no replica for %v", wire.ErrValue, t)
		}
		switch t.Kind {
		case wire.OuterGrad, wire.KindOuterReport, wire.OuterHave:
			return atMost(gather.Most(run, p, from, to, t), t, bytes)
		}
		own := t
		own.Replica = 0
		return alone[t.Replica](from, to, own, bytes)
	}
}

// StepBytes returns at most how many bytes of activations, or of gradients, a step of a run sends over one boundary between
// stages.
func StepBytes(run plan.RunSpec) int {
	p := program{spec: run}
	return run.Train.Micros * wire.TensorBytes(wire.F32, p.tokensPerMicro()*run.Model.Channels, run.Model.Channels)
}

type expectation struct {
	program
	self plan.PeerID
}

// nothing is less than any message has.
const nothing = gather.Nothing

// most returns how many bytes a peer's message with a tag may have, or nothing where the plan has none.
func (e *expectation) most(from plan.PeerID, t wire.Tag) int {
	switch t.Kind {
	case wire.Activation, wire.Gradient:
		source := t.Stage - 1
		if t.Kind == wire.Gradient {
			source = t.Stage + 1
		}
		tries := 1
		if e.plan.PostValidation {
			tries = 2
		}
		known := int(t.Index) < tries*(e.spec.Train.Micros+2*heldOutMicros)*e.spec.Model.Context // a segment has a token or more
		if known && e.has(t.Replica, t.Stage, e.self) && e.has(t.Replica, source, from) {
			n, token := e.tokensPerMicro()*e.spec.Model.Channels, e.spec.Model.Channels
			return max(wire.TensorBytes(wire.F32, n, token), wire.TensorBytes(wire.Int4, n, token)) // whose tiles are larger than a token of few channels
		}
	case wire.TiedGrad:
		other := plan.Stage(0)
		if t.Stage == 0 && e.inPlan(t.Replica, 0) {
			other = plan.Stage(len(e.plan.Replicas[t.Replica].Stages) - 1)
		}
		if e.has(t.Replica, t.Stage, e.self) && e.has(t.Replica, other, from) {
			return collective.MostBytes(e.spec.Model.TiedGradLen())
		}
	case wire.KindReport:
		if e.has(t.Replica, t.Stage, from) && e.plan.Coordinator().Peer == e.self {
			return wire.ReportBytes(e.spec.Train.Micros, e.spec.Model.Layers()*e.pieces())
		}
	case wire.KindCommit:
		if e.has(t.Replica, t.Stage, e.self) && e.plan.Coordinator().Peer == from {
			return wire.MaxCommitBytes
		}
	default:
		return e.mostOfLayer(from, t)
	}
	return nothing
}

// mostOfLayer is most for messages between the holders of a layer.
func (e *expectation) mostOfLayer(from plan.PeerID, t wire.Tag) int {
	layer, number, _ := collective.LayerOf(t)
	switch t.Kind {
	case wire.ReducePart, wire.GatherPart: // from a replica to replica `number`
		if e.holds(t.Replica, t.Stage, layer, from) && e.keeps(number, layer, e.self) {
			return collective.MostBytes(e.spec.Model.LayerLen(layer))
		}
	case wire.StatePart: // of vector `number`, to replica 0
		if number < momentVectors && e.holds(t.Replica, t.Stage, layer, from) && e.keeps(0, layer, e.self) {
			return collective.MostBytes(e.spec.Model.TrainedLen(layer))
		}
	case wire.StateTaken:
		if number < momentVectors && e.holds(t.Replica, t.Stage, layer, e.self) && e.keeps(0, layer, from) {
			return 0
		}
	}
	return nothing
}

func (e *expectation) inPlan(r plan.Replica, s plan.Stage) bool {
	return r >= 0 && int(r) < len(e.plan.Replicas) && s >= 0 && int(s) < len(e.plan.Replicas[r].Stages)
}

// has reports whether a peer has a stage.
func (e *expectation) has(r plan.Replica, s plan.Stage, peer plan.PeerID) bool {
	return e.inPlan(r, s) && e.plan.Replicas[r].Stages[s].Peer == peer
}

// holds reports whether a peer has a stage with a layer.
func (e *expectation) holds(r plan.Replica, s plan.Stage, layer int, peer plan.PeerID) bool {
	return e.has(r, s, peer) && e.plan.Replicas[r].Stages[s].Layers.Contains(layer)
}

// keeps reports whether a peer has a layer of a replica in one of its stages.
func (e *expectation) keeps(r, layer int, peer plan.PeerID) bool {
	if r >= len(e.plan.Replicas) {
		return false
	}
	for s := range e.plan.Replicas[r].Stages {
		if e.holds(plan.Replica(r), plan.Stage(s), layer, peer) {
			return true
		}
	}
	return false
}
