package generation

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"pnode/pipeline/link"
	"pnode/pipeline/link/silence"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// ErrReplaced ends a generation because another plan took its place.
var ErrReplaced = errors.New("generation: another plan took over")

// errGivenUp ends a generation because another member of its plan has, for want of a link.
var errGivenUp = fmt.Errorf("generation: another member has given the generation up: %w", link.ErrLeft)

// missedToo is the silence of a link by which this node agrees with another one that has lost its own to the same peer.
const missedToo = silence.LeastLink / 2

// LostPeerError ends a generation because a neighbour went silent.
type LostPeerError struct {
	name  string // empty for this node itself
	fault *plan.Fault
}

func (e LostPeerError) Error() string {
	if e.name == "" {
		return "generation: the others have counted this node as gone"
	}
	return fmt.Sprintf("generation: lost the link to %s", e.name)
}

func (e LostPeerError) Unwrap() error { return e.fault }

// Follow acts on the replicated state. It hands the log's word on a lost member to the steps, and ends a generation that cannot
// go on. Links may notice later.
func (g *Generation) Follow(state consensus.State) {
	if g.plan.Generation != state.Plan.Generation {
		return
	}
	if s := state.Substitute; s != nil && s.Lost != g.Self && !g.replaced {
		g.replaced = true
		g.substitutes <- *s
	}
	if err := g.loss(state); err != nil {
		g.end(err)
	}
}

// loss returns why the generation cannot go on, or nil: the roster has lost a member of its plan, another member has given it up for
// want of a link, or the log wants what it has left saved. It goes on where another member goes on in a lost one's place. Of replicas with local
// steps those here alone are looked at: the log says who waits for the others.
func (g *Generation) loss(state consensus.State) error {
	peers := needed(state.Plan, g.Self)
	for _, peer := range peers {
		if state.Substitute.Carrier(peer) != peer && peer != g.Self { // who is replaced itself has lost its part
			continue
		}
		if m, _ := state.Member(peer); m.State == consensus.Gone || m.State != "" && state.Reborn(m) {
			return g.without(peer, "it is not there any more")
		}
	}
	others := slices.DeleteFunc(peers, func(p plan.PeerID) bool { return p == g.Self || state.Substitute.Carrier(p) != p })
	for _, a := range g.Heartbeats.Stalled(others, state.Plan.Generation, time.Now()).Accusations {
		switch s := g.session.Load(); {
		case a.Kind != plan.LostLink:
		case s != nil && s.Silence(a.Accused) > missedToo:
			return g.without(a.Accused, "lost the link to it")
		default:
			return errGivenUp
		}
	}
	if s := state.Salvage; s != nil && s.Generation == state.Plan.Generation {
		return errGivenUp
	}
	return nil
}

// lost returns why the generation ends without the link to a peer, which lives as far as is known.
func (g *Generation) lost(session *link.Session, peer plan.PeerID) error {
	if f := session.Fault(peer); f != nil {
		return LostPeerError{g.state.NameOf(peer), f}
	}
	return g.without(peer, "lost the link to it")
}

// without is the reason to end the generation for want of a peer.
func (g *Generation) without(peer plan.PeerID, why string) error {
	name := ""
	if peer != g.Self {
		name = g.state.NameOf(peer)
	}
	return LostPeerError{name, &plan.Fault{Accused: peer, Kind: plan.LostLink, Step: g.Newest(), Detail: why}}
}

// retains reports whether the state of workers that ended with an error is good: another peer's absence was the reason.
func retains(err error, self plan.PeerID) bool {
	if f := (*plan.Fault)(nil); errors.As(err, &f) {
		return (f.Kind == plan.LostLink || f.Kind == plan.NoProgress) && f.Accused != self
	}
	return err == nil || errors.Is(err, link.ErrLost) || errors.Is(err, link.ErrLeft)
}
