// Package places shares what room there is for peers that nobody has admitted yet. [Places] are counted by the address that
// a peer comes from: the fuller it gets, the fewer an address may hold, so that a few addresses never keep
// the others out. [Networks] are the same addresses as a member announces them. It knows nothing of connections or greetings,
// which host and handshake count with it.
package places
