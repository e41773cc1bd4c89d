package admission

import (
	"fmt"
	"slices"
	"sync"

	"pnode/planner/plan"
)

// Grants counts the peers bound to each grant: the first Uses of them are admitted, then no other. It knows the
// peers that this process admitted and those given to Bind. Its methods may be called from any goroutine.
type Grants struct {
	// mu guards bound.
	mu    sync.Mutex
	bound map[Serial][]plan.PeerID
}

// maxGrants bounds the grants that are counted; a new one beyond it is refused. Only the owner can come near
// it: each costs its signature.
const maxGrants = 65536

// NewGrants returns an empty count.
func NewGrants() *Grants { return &Grants{bound: map[Serial][]plan.PeerID{}} }

// Bind adds peers that are known to have come by a grant.
func (g *Grants) Bind(serial Serial, peers ...plan.PeerID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	bound := slices.Clone(g.bound[serial])
	for _, p := range peers {
		if !slices.Contains(bound, p) {
			bound = append(bound, p)
		}
	}
	g.bound[serial] = bound
}

// Admit binds the peer of a verified capability to its grant. The error wraps ErrInviteUsed when others
// have used the grant up.
func (g *Grants) Admit(c Capability) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	peers, known := g.bound[c.Serial]
	if slices.Contains(peers, c.Peer) {
		return nil
	}
	if len(peers) >= c.Uses {
		return fmt.Errorf("%w (it was for %d)", ErrInviteUsed, c.Uses)
	}
	if !known && len(g.bound) >= maxGrants {
		return fmt.Errorf("%w: this member counts %d invites already", ErrRefused, maxGrants)
	}
	g.bound[c.Serial] = append(peers, c.Peer)
	return nil
}
