// Package admission decides who may be in a run. It signs and checks what nodes show each other, and holds
// the set of connected peers with the verdict on each. It opens no connection: package handshake
// carries its messages.
//
// # Nouns
//
//   - [Identity]: this node's key; its public half is the peer ID.
//   - [Owner]: whoever signs a [Grant], "whoever has this bearer key may bind so many peers to this run, until
//     then": the holder of the run's root key, or a node that came by an owner's invite for owners, whose own
//     capability goes with its grants. Ownership can be handed on three times.
//   - [Invite]: a secret of 16 bytes that the bearer key is made from, the address and key of a contact, and a digest of
//     the run, as one short line of text.
//   - [Claim] and [Offer]: what a newcomer asks the contact, signed with the bearer key, and the answer, which the
//     digest proves: the run and the grant.
//   - [Capability]: one peer bound to a grant by the bearer key. It is public, and every member can
//     check it alone with the root key's public half.
//   - [Question] and [Decide]: the one decision on admission, from values.
//   - [Peers]: who is connected, and who of them is a member.
//
// Signatures prove offline that an owner allowed n peers until a time. They do not prove which n came first,
// nor when, nor that no owner has taken it back: Question.Admit answers that, from the replicated log (package door).
//
// It is called by the other packages of swarm and by node. It imports plan for the vocabulary and libp2p for
// peer IDs, keys and addresses.
package admission
