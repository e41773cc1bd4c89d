package listen

import (
	"net/netip"
	"slices"
	"testing"
)

// TestLANAddresses: homes come first, what may be a carrier's last, and what other machines do not reach, or everybody does, is left out.
func TestLANAddresses(t *testing.T) {
	var networks []network
	for _, n := range [][2]string{
		{"eth1", "169.254.3.4"},
		{"wlan0", "fe80::1"},
		{"wlan0", "fd12::7"},
		{"tailscale0", "100.101.2.3"},
		{"wlan0", "192.168.1.7"},
		{"docker0", "172.17.0.1"},
		{"vEthernet (WSL (Hyper-V firewall))", "172.20.0.1"},
		{"eth0", "203.0.113.5"},
		{"eth0", "2001:db8::5"},
		{"eth2", "10.0.0.7"},
		{"odd", "127.0.0.9"},
	} {
		networks = append(networks, network{n[0], netip.MustParseAddr(n[1])})
	}
	var got []string
	for _, at := range lan(networks) {
		got = append(got, at.String())
	}
	want := []string{"192.168.1.7", "10.0.0.7", "fd12::7", "169.254.3.4", "100.101.2.3"}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for text, local := range map[string]bool{
		"10.0.0.1": true, "127.0.0.1": true, "::1": true, "fd00::1": true, "100.64.0.1": true, "100.128.0.1": false, "8.8.8.8": false, "0.0.0.0": false, "::": false, "2001:db8::5": false, "224.0.0.1": false,
	} {
		if Local(netip.MustParseAddr(text)) != local {
			t.Errorf("%s: local is %v", text, !local)
		}
	}
}
