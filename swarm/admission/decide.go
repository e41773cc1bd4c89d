package admission

import (
	"crypto/ed25519"
	"fmt"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"pnode/planner/plan"
)

// TimeLimit bounds how long a connected peer may stay without being a member.
const TimeLimit = 10 * time.Second

// Run names a run and holds the key that its signatures are checked with.
type Run struct {
	ID       plan.RunID
	OwnerKey ed25519.PublicKey
}

// Question holds all that a member's decision on admitting a peer rests on.
type Question struct {
	Run Run
	// Peer is the other end's ID, which the connection's handshake has proved.
	Peer peer.ID
	// Capability is the encoded one that the peer showed; empty without an invite.
	Capability []byte
	// Blocked is why this member refuses the peer whatever it shows; nil for others.
	Blocked error
	Now     time.Time
	// Admit answers for a verified capability whether its peer came, or may come, by its invite.
	Admit func(Capability) error
}

// Decide returns the verified capability of a peer that may come in, or the reason why it may not. It is the
// only place where a member decides on admission; all rules about who may join belong here.
func Decide(q Question) (Capability, error) {
	if q.Blocked != nil {
		return Capability{}, q.Blocked
	}
	if len(q.Capability) == 0 {
		return Capability{}, ErrNeedsInvite
	}
	c, err := DecodeCapability(q.Capability)
	if err != nil {
		return Capability{}, err
	}
	if err := c.Verify(q.Run, q.Now); err != nil {
		return Capability{}, err
	}
	if c.id != q.Peer {
		return Capability{}, fmt.Errorf("%w: the capability is for peer %s, this is %s", ErrSignature, c.Peer, q.Peer)
	}
	if err := q.Admit(c); err != nil {
		return Capability{}, err
	}
	return c, nil
}
