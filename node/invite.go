package node

import (
	"errors"
	"fmt"
	"time"

	"pnode/node/api"
	"pnode/swarm/admission"
)

// Invite makes an invite to the run; only the creator's node can.
func (n *Node) Invite(ttl time.Duration, uses int) (string, error) {
	if len(n.swarm.Addrs()) == 0 {
		return "", fmt.Errorf("node: no address yet: %w", api.ErrNotReady)
	}
	invite, err := n.swarm.Invite(admission.InviteOptions{TTL: ttl, Uses: uses})
	if errors.Is(err, admission.ErrNoOwnerKey) {
		return "", admission.ErrNoOwnerKey // a sentence by itself
	}
	if err != nil {
		return "", err
	}
	return invite.String(), nil
}

// announceInvite shows an invite where others can reach this node.
func (n *Node) announceInvite() error {
	if n.seat.Listen == "" {
		return nil
	}
	invite, err := n.Invite(0, inviteUses)
	if errors.Is(err, admission.ErrNoOwnerKey) {
		return nil // a member that came by an invite
	}
	if err != nil {
		return err
	}
	n.out.Notice("join from another machine or terminal with:\n  pnode join " + invite)
	return nil
}

// inviteUses is how many nodes may come in by the invite that train prints.
const inviteUses = 64
