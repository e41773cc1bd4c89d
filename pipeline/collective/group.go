package collective

import (
	"context"
	"errors"
	"fmt"

	"pnode/pipeline/model"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// Exchange carries frames between workers; *link.Session is one. Send may return before
// the frame has left, so a payload is not changed after it; both may block.
type Exchange interface {
	Send(ctx context.Context, to plan.PeerID, f wire.Frame) error
	Receive(ctx context.Context, from plan.PeerID, tag wire.Tag) ([]byte, error)
}

// Brought returns who brought a message that came from a peer by the plan, or is to bring it. That is another one where an exchange
// knows of the peer's substitute: a *link.Session does.
func Brought(ex Exchange, from plan.PeerID, tag wire.Tag) plan.PeerID {
	if e, ok := ex.(interface {
		Brought(from plan.PeerID, tag wire.Tag) plan.PeerID
	}); ok {
		return e.Brought(from, tag)
	}
	return from
}

// ErrBadGroup is wrapped by errors about a group that cannot be reduced.
var ErrBadGroup = errors.New("collective: bad group")

// A reduction's tag has the sender in Replica and Stage. Its Index holds the layer and the
// receiving replica, so that one peer may hold the same layer in several replicas, and the number
// of the piece.
const (
	maxLayers   = 1 << 11 // a model has 1,026 at most
	maxReplicas = 1 << 10
)

// Member is where one replica's holder of a layer, or one end of a tied pair, runs. Groups are the sum groups
// of its replica.
type Member struct {
	Peer   plan.PeerID
	Stage  plan.Stage
	Groups plan.GroupRange
}

// Group is the holders of one layer in one step.
type Group struct {
	// Members are in replica order, one for each replica. Replicas may share a peer.
	Members []Member
	// Sums is the order in which the members' gradients are added.
	Sums plan.Sums
	// Self is the replica this worker belongs to.
	Self plan.Replica
	// Parts are by replica the ranges of a vector that it owns; nil cuts it evenly.
	Parts      [][]model.Range
	Layer      int
	Generation plan.Generation
	Step       plan.Step
	// Overflow takes who sent elements out of bounds, where loss scaling may make them; nil: a fault.
	Overflow func(from plan.PeerID, t wire.Tag)
	cut      pieces
}

func (g Group) vector() vector {
	return vector{cut: g.cut, self: g.Members[g.Self].Peer, overflow: g.Overflow, limit: wire.ReducePart.Bound()}
}

// sums is the vector of what all members have added up.
func (g Group) sums() vector {
	v := g.vector()
	v.limit = MostSum(g.Sums.Groups)
	return v
}

// MostSum returns what sums of the gradients of so many groups of micro-batches stay below: twice what they may
// be, so that one that is rounded is nobody's fault.
func MostSum(groups int) float32 {
	return 2 * float32(groups) * wire.ReducePart.Bound()
}

func (g Group) validate() error {
	switch n := len(g.Members); {
	case n < 1 || n > maxReplicas:
		return fmt.Errorf("%w: layer %d has %d members, 1 to %d are accepted", ErrBadGroup, g.Layer, n, maxReplicas)
	case g.Self < 0 || int(g.Self) >= n:
		return fmt.Errorf("%w: replica %d is not among the %d members of layer %d", ErrBadGroup, g.Self, n, g.Layer)
	case g.Parts != nil && len(g.Parts) != n:
		return fmt.Errorf("%w: layer %d has %d parts for %d members", ErrBadGroup, g.Layer, len(g.Parts), n)
	case g.Sums.Groups < n:
		return fmt.Errorf("%w: layer %d has %d members for %d sum groups", ErrBadGroup, g.Layer, n, g.Sums.Groups)
	case g.Layer < 0 || g.Layer >= maxLayers:
		return fmt.Errorf("%w: layer %d, 0 to %d are accepted", ErrBadGroup, g.Layer, maxLayers-1)
	}
	return nil
}

// tag is the tag of a part that replica from sends to replica to.
func (g Group) tag(kind wire.Kind, from, to int) wire.Tag {
	return wire.Tag{
		Kind: kind, Generation: g.Generation, Step: g.Step,
		Replica: plan.Replica(from), Stage: g.Members[from].Stage, Index: int32(to*maxLayers + g.Layer),
	}
}

// part returns the ranges that replica k owns of a vector of n elements.
func (g Group) part(k, n int) []model.Range {
	if g.Parts != nil {
		return g.Parts[k]
	}
	r := len(g.Members)
	return []model.Range{{First: n * k / r, End: n * (k + 1) / r}}
}

func (g Group) partLen(k, n int) int {
	sum := 0
	for _, r := range g.part(k, n) {
		sum += r.Len()
	}
	return sum
}

// unpack puts replica k's part to its place in v.
func (g Group) unpack(k int, v, part []float32) {
	for _, r := range g.part(k, len(v)) {
		part = part[copy(v[r.First:r.End], part):]
	}
}
