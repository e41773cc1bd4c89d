// Package diagnose finds out whether this machine can reach the contact of an invite, and what is in the way. [Run] makes
// a test of each part of the way: the names in the addresses, the routes, UDP, TCP, the proxy, the clocks, the invite.
// It asks a contact nothing that it does not answer every stranger: a TLS handshake, and the claim of an invite, which
// uses the invite's places as little as reading it does. [Judge] makes the verdict of the tests, and knows nothing of
// networks. It is called by swarm, for `pnode doctor --net` and for a join that fails.
package diagnose
