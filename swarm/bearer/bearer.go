package bearer

import (
	"crypto/ed25519"

	"pnode/planner/plan"
)

// prefix keeps a signature from meaning anything in another place.
const prefix = "pnode capability 2\x00"

// Bind returns the signature that binds a peer to a signed invite: 64 bytes.
func Bind(key ed25519.PrivateKey, invite []byte, peer plan.PeerID) []byte {
	return ed25519.Sign(key, message(invite, peer))
}

// Bound reports whether the holder of the private half of key has bound the peer to a signed invite.
func Bound(key, invite []byte, peer plan.PeerID, signature []byte) bool {
	return len(key) == ed25519.PublicKeySize && ed25519.Verify(key, message(invite, peer), signature)
}

// message is unambiguous: an invite's length follows from its bytes, and the peer is the rest.
func message(invite []byte, peer plan.PeerID) []byte {
	return append(append([]byte(prefix), invite...), peer...)
}
