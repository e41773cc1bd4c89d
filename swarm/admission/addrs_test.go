package admission

import (
	"slices"
	"strings"
	"testing"

	ma "github.com/multiformats/go-multiaddr"
)

// What is acceptable is read again from its text, with the peer at its end.
func TestAcceptable(t *testing.T) {
	p, relay := testIdentity(t).ID(), testIdentity(t).ID().String()
	for text, want := range map[string]bool{
		"/ip4/192.0.2.1/udp/4001/quic-v1":                               true,
		"/ip6/2001:db8::1/tcp/4001":                                     true,
		"/dns/desk.example.org/tcp/443/tls/ws":                          true,
		"/ip4/192.0.2.1/udp/4001/quic-v1/p2p/" + relay + "/p2p-circuit": true,
		"/dns4/x\x1b[31m/tcp/4001":                                      false,
		"/dns4/" + strings.Repeat("x", 180) + "/tcp/4001":               true,
		"/dns4/" + strings.Repeat("x", 230) + "/tcp/4001":               false, // with the peer
		"/ip4/192.0.2.1/udp/4001/quic-v1/sni/x\x1b[31m":                 false,
		"/unix/tmp/pnode":                                               false, // which ends no earlier than the text
	} {
		a, err := ma.NewMultiaddr(text)
		if err != nil {
			t.Fatal(err)
		}
		got := Acceptable(p, []ma.Multiaddr{a})
		if (len(got) == 1) != want {
			t.Errorf("%q: acceptable %v, want %v", text, !want, want)
		}
		for _, a := range got {
			infos, err := ParseAddrs([]string{a.String() + "/p2p/" + p.String()})
			if err != nil || infos[0].ID != p || !slices.EqualFunc(infos[0].Addrs, got, ma.Multiaddr.Equal) {
				t.Errorf("%q is read as %v, %v", text, infos, err)
			}
		}
	}
	if got := Acceptable(p, []ma.Multiaddr{nil, {}}); len(got) > 0 {
		t.Errorf("nothing is an address: %q", got)
	}
}
