package places

import (
	"fmt"
	"testing"
)

// TestNetworks: what tells where a member is does, and nothing else.
func TestNetworks(t *testing.T) {
	const relayed = "/ip4/5.6.7.8/udp/1/quic-v1/p2p/x/p2p-circuit"
	for _, c := range []struct {
		addrs []string
		want  string
	}{
		{nil, "[]"},
		{[]string{"/ip4/192.168.1.7/udp/1/quic-v1", "/ip4/100.64.3.3/tcp/1", "/ip4/127.0.0.1/tcp/1", "/ip6/fe80::1/tcp/1", "/ip6/fd00::1/tcp/1", "/ip4/0.0.0.0/tcp/1"}, "[]"},
		{[]string{relayed, "/dns4/example.org/tcp/1", "/ip4/x/tcp/1", "text", "/ip4"}, "[]"},
		{[]string{"/ip4/5.6.7.8/udp/1/quic-v1", "/ip4/5.6.7.8/tcp/2", relayed}, "[5.6.7.8/32]"},
		{[]string{"/ip6/2001:db8:1:2::3/udp/1/quic-v1", "/ip6/2001:db8:1:9::4/tcp/2"}, "[2001:db8:1::/48]"},
		{[]string{"/ip6/::ffff:5.6.7.8/tcp/1"}, "[5.6.7.8/32]"},
	} {
		if got := fmt.Sprint(Networks(c.addrs)); got != c.want {
			t.Errorf("%v: got %s, want %s", c.addrs, got, c.want)
		}
	}
}
