package collective

import (
	"context"
	"errors"
	"fmt"

	"pnode/pipeline/wire"
	"pnode/planner"
)

// Exchange carries frames between workers; *link.Session is one. Send may return before
// the frame has left, so a payload is not changed after it; both may block.
type Exchange interface {
	Send(ctx context.Context, to planner.PeerID, f wire.Frame) error
	Receive(ctx context.Context, from planner.PeerID, tag wire.Tag) ([]byte, error)
}

// ErrBadGroup is wrapped by errors about a group that cannot be reduced.
var ErrBadGroup = errors.New("collective: bad group")

// A reduction's tag has the sender in Replica and Stage. Its Index holds the layer and the
// receiving replica, so that one peer may hold the same layer in several replicas.
const (
	maxLayers   = 1 << 16
	maxReplicas = 1 << 15
)

// Member is where one replica's holder of a layer, or one end of a tied pair, runs.
type Member struct {
	Peer  planner.PeerID
	Stage planner.Stage
}

// Group is the holders of one layer in one step.
type Group struct {
	// Members are in replica order, one for each replica. Replicas may share a peer.
	Members []Member
	// Self is the replica this worker belongs to.
	Self       planner.Replica
	Layer      int
	Generation planner.Generation
	Step       planner.Step
}

func (g Group) validate() error {
	switch n := len(g.Members); {
	case n < 1 || n > maxReplicas:
		return fmt.Errorf("%w: layer %d has %d members, 1 to %d are accepted", ErrBadGroup, g.Layer, n, maxReplicas)
	case g.Self < 0 || int(g.Self) >= n:
		return fmt.Errorf("%w: replica %d is not among the %d members of layer %d", ErrBadGroup, g.Self, n, g.Layer)
	case g.Layer < 0 || g.Layer >= maxLayers:
		return fmt.Errorf("%w: layer %d, 0 to %d are accepted", ErrBadGroup, g.Layer, maxLayers-1)
	}
	return nil
}

// tag is the tag of a part that replica from sends to replica to.
func (g Group) tag(kind wire.Kind, from, to int) wire.Tag {
	return wire.Tag{
		Kind: kind, Generation: g.Generation, Step: g.Step,
		Replica: planner.Replica(from), Stage: g.Members[from].Stage, Index: int32(to*maxLayers + g.Layer),
	}
}

// part is the range of a vector of n elements that replica k owns: [n*k/R, n*(k+1)/R).
func (g Group) part(k, n int) (first, end int) {
	r := len(g.Members)
	return n * k / r, n * (k + 1) / r
}
