package host

import (
	"fmt"
	"testing"

	ma "github.com/multiformats/go-multiaddr"
)

// What a NAT is guessed to map TCP to has the IP address of UDP and a port that is listened on for its family.
func TestSameOverTCP(t *testing.T) {
	var listens []ma.Multiaddr
	for _, l := range []string{
		"/ip4/10.0.0.2/udp/4001/quic-v1", "/ip4/10.0.0.2/tcp/4001", "/ip4/127.0.0.1/tcp/4001", "/ip6/::/tcp/4002", "/p2p-circuit",
		"/ip4/203.0.113.1/tcp/443/p2p/12D3KooWGzxzKZYveHXtpG6AsrUJBcWxHBFS2HsEoGTxrMLvKXtf/p2p-circuit",
	} {
		listens = append(listens, ma.StringCast(l))
	}
	for seen, want := range map[string]string{
		"/ip4/198.51.100.7/udp/31000/quic-v1": "[/ip4/198.51.100.7/tcp/4001]",
		"/ip6/2001:db8::7/udp/31000/quic-v1":  "[/ip6/2001:db8::7/tcp/4002]",
	} {
		if got := fmt.Sprint(sameOverTCP(ma.StringCast(seen), listens)); got != want {
			t.Errorf("%s: %s, want %s", seen, got, want)
		}
	}
}
