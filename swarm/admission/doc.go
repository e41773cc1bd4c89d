// Package admission decides who may be in a run. It signs and checks what nodes show each other, and holds
// the set of connected peers with the verdict on each. It opens no connection: package handshake
// carries its messages.
//
// # Nouns
//
//   - [Identity]: this node's key; its public half is the peer ID.
//   - [Owner]: the run's key, which only the creator holds. It signs a [Grant]: "whoever has this
//     bearer key may bind so many peers to this run, until then".
//   - [Invite]: a grant, its bearer key, and addresses, as one line of text.
//   - [Capability]: one peer bound to a grant by the bearer key. It is public, and every member can
//     check it alone with the owner's public key.
//   - [Question] and [Decide]: the one decision on admission, from values.
//   - [Grants]: how many peers came by each grant.
//   - [Peers]: who is connected, and who of them is a member.
//
// Signatures prove offline that the owner allowed n peers until a time. They do not prove which n came first,
// nor when: the first is counted by Question.Uses, the second checked by [Invite.Redeem], on the new
// node itself.
//
// It is called by the other packages of swarm and by node. It imports plan for the vocabulary and libp2p for
// peer IDs, keys and addresses.
package admission
