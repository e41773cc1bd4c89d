package host

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	ma "github.com/multiformats/go-multiaddr"

	"pnode/swarm/announce"
)

func testOwnAddrs(t *testing.T, text string) *ownAddrs {
	t.Helper()
	l, err := announce.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	o, err := newOwnAddrs(l)
	if err != nil {
		t.Fatal(err)
	}
	o.bridges, o.bridgesAt = map[netip.Addr]bool{netip.MustParseAddr("172.17.0.1"): true}, time.Now().Add(time.Hour)
	return o
}

func texts(addrs []ma.Multiaddr) string {
	var out []string
	for _, a := range addrs {
		out = append(out, a.String())
	}
	return strings.Join(out, " ")
}

// Others are told few addresses that may lead here, the likeliest first.
func TestOwnAddresses(t *testing.T) {
	var found []ma.Multiaddr
	for _, a := range strings.Fields("/ip4/127.0.0.1/tcp/1 /ip4/172.17.0.1/tcp/1 /ip4/192.168.1.2/tcp/1 /ip4/203.0.113.1/tcp/1 /ip4/8.8.8.8/tcp/1 " +
		"/ip4/169.254.1.1/tcp/1 /ip6/fe80::1/tcp/1 /ip6/fd00::1/tcp/1 /ip6/fd00::2/tcp/1 /ip6/fd00::3/tcp/1 /ip6/fd00:0:0:1::1/tcp/1") {
		found = append(found, ma.StringCast(a))
	}
	o := testOwnAddrs(t, "tcp/198.51.100.1:2")
	const want = "/ip4/198.51.100.1/tcp/2 /ip4/8.8.8.8/tcp/1 /ip4/192.168.1.2/tcp/1 /ip4/203.0.113.1/tcp/1 /ip6/fd00::1/tcp/1 /ip6/fd00::2/tcp/1 /ip6/fd00:0:0:1::1/tcp/1 /ip4/127.0.0.1/tcp/1"
	if got := texts(o.choose(found)); got != want {
		t.Errorf("tells of %s,\nwant %s", got, want)
	}
	if got := texts(o.choose(o.choose(found))); got != want {
		t.Errorf("tells of %s the second time", got)
	}
	if got := texts(testOwnAddrs(t, "only,tcp/198.51.100.1:2").choose(found)); got != "/ip4/198.51.100.1/tcp/2" {
		t.Errorf("alone: %s", got)
	}
	if got := texts(testOwnAddrs(t, "").choose(found[:2])); got != "/ip4/172.17.0.1/tcp/1 /ip4/127.0.0.1/tcp/1" {
		t.Errorf("a machine with nothing else: %s", got)
	}
	for i := range 100 {
		found = append(found, ma.StringCast(fmt.Sprintf("/ip4/10.0.0.%d/tcp/1", i)))
	}
	if got := o.choose(found); len(got) != maxOwnAddrs || !got[0].Equal(o.announced[0]) {
		t.Errorf("%d addresses: %s", len(got), texts(got))
	}
}
