package pairing

import (
	"net/netip"
	"testing"
)

// TestAnnounced takes addresses of the local network with a peer ID, and nothing else of what anybody may announce.
func TestAnnounced(t *testing.T) {
	const desk, other = "/p2p/12D3KooWGzxzKZYveHXtpG6AsrUJBcWxHBFS2HsEoGTxrMLvKXtf", "/p2p/12D3KooWD3bfmNbuuuVCYwkjnFt3ukm3qaB3hDED2J2MEFtuM6Et"
	near := func(at netip.Addr) bool { return netip.MustParsePrefix("192.168.1.0/24").Contains(at) }
	infos := announced([]string{
		"dnsaddr=/ip4/192.168.1.7/udp/4001/quic-v1" + desk,
		"dnsaddr=/ip4/192.168.1.7/tcp/4001" + desk,
		"dnsaddr=/ip4/198.51.100.7/udp/4001/quic-v1" + other,
		"dnsaddr=/ip4/192.168.1.9/tcp/4001" + other + "/p2p-circuit" + other,
		"dnsaddr=/dns/desk.example/tcp/4001" + other,
		"dnsaddr=/ip4/192.168.1.8/udp/4001/quic-v1",
		"dnsaddr=nonsense", "name=desk", "",
	}, near)
	if len(infos) > 0 {
		t.Errorf("an address without a peer ID spoils all: %v", infos)
	}
	infos = announced([]string{
		"dnsaddr=/ip4/192.168.1.7/udp/4001/quic-v1" + desk,
		"dnsaddr=/ip4/192.168.1.7/tcp/4001" + desk,
		"dnsaddr=/ip4/198.51.100.7/udp/4001/quic-v1" + other,
		"dnsaddr=/ip4/192.168.1.9/tcp/4001" + other + "/p2p-circuit" + other,
		"dnsaddr=nonsense",
	}, near)
	if len(infos) != 1 || infos[0].ID.String() != desk[len("/p2p/"):] || len(infos[0].Addrs) != 2 {
		t.Errorf("%v", infos)
	}
	many := make([]string, 100)
	for i := range many {
		many[i] = "dnsaddr=/ip4/192.168.1.7/udp/4001/quic-v1" + desk
	}
	if infos := announced(many, near); len(infos) != 1 || len(infos[0].Addrs) > maxAddrs {
		t.Errorf("%v", infos)
	}
}
