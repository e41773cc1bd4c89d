package swarm

import (
	"net"
	"slices"
	"testing"
)

// Two nodes of a run find each other in the local network, without any address given.
func TestMDNS(t *testing.T) {
	interfaces, err := net.Interfaces()
	if err != nil || !slices.ContainsFunc(interfaces, func(i net.Interface) bool {
		return i.Flags&(net.FlagUp|net.FlagMulticast|net.FlagLoopback) == net.FlagUp|net.FlagMulticast
	}) {
		t.Skip("no network interface with multicast")
	}
	o := testOwner(t)
	var both []*Swarm
	for range 2 {
		cfg := testMember(t, o, testRun)
		cfg.Listen, cfg.MDNS = []string{"0.0.0.0:0"}, true
		both = append(both, start(t, cfg))
	}
	for _, s := range both {
		waitMembers(t, testContext(t), s, 1)
	}
}
