package swarm

import (
	"fmt"
	"slices"
	"sync"

	"pnode/planner/plan"
)

// Ledger counts the peers bound to each grant: the first Uses of them are admitted, then
// no other. It knows what this process saw, and what it was told of by Bind.
type Ledger struct {
	// mu guards bound.
	mu    sync.Mutex
	bound map[Serial][]plan.PeerID
}

// maxLedger bounds the grants that are counted. A grant costs its owner a signature, so
// only the owner can come near it; beyond it a new grant is refused.
const maxLedger = 65536

// NewLedger is an empty ledger.
func NewLedger() *Ledger { return &Ledger{bound: map[Serial][]plan.PeerID{}} }

// Bind takes over what the run knows: these peers have come by a grant.
func (l *Ledger) Bind(serial Serial, peers ...plan.PeerID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	bound := slices.Clone(l.bound[serial])
	for _, p := range peers {
		if !slices.Contains(bound, p) {
			bound = append(bound, p)
		}
	}
	l.bound[serial] = bound
}

// Admit binds the capability's peer to its grant, or says ErrInviteUsed. The capability
// must have been verified.
func (l *Ledger) Admit(c Capability) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	peers, known := l.bound[c.Serial]
	if slices.Contains(peers, c.Peer) {
		return nil
	}
	if len(peers) >= c.Uses {
		return fmt.Errorf("%w (it was for %d)", ErrInviteUsed, c.Uses)
	}
	if !known && len(l.bound) >= maxLedger {
		return fmt.Errorf("%w: this member counts %d invites already", ErrRefused, maxLedger)
	}
	l.bound[c.Serial] = append(peers, c.Peer)
	return nil
}
