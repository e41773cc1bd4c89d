package admission

import (
	"strings"
	"testing"
	"time"

	ma "github.com/multiformats/go-multiaddr"
)

// Addresses of every kind come out of an invite as they went in, and one port of UDP and TCP takes one place.
func TestPlacesOfInvites(t *testing.T) {
	owner := testOwner(t)
	peer := testIdentity(t).ID().String()
	for _, c := range []struct {
		addrs  string
		places int
		chars  int // most of the text form
	}{
		{"/ip4/203.0.113.7/udp/4001/quic-v1 /ip4/203.0.113.7/tcp/4001", 1, 102},
		{"/ip4/203.0.113.7/tcp/40123", 1, 102},
		{"/ip4/203.0.113.7/udp/1/quic-v1 /ip4/203.0.113.7/tcp/2", 2, 111},
		{"/ip6/2001:db8::1/udp/4001/quic-v1 /ip6/2001:db8::1/tcp/4001", 1, 118},
		{"/dns/home.example.org/udp/4001/quic-v1 /dns/home.example.org/tcp/4001", 1, 119},
		{"/dns/pod-7.example.net/tcp/443/tls/ws", 1, 121},
		{"/dns/a.example/tcp/443 /dns/a.example/tcp/443/tls/ws", 2, 130},
		{"/dns4/a.example/tcp/1", 1, 120},
		{"/ip4/203.0.113.7/udp/4001/quic-v1/p2p/" + peer + "/p2p-circuit", 1, 170},
	} {
		var addrs []string
		var parsed []ma.Multiaddr
		for a := range strings.FieldsSeq(c.addrs) {
			addrs = append(addrs, a+"/p2p/"+peer)
			parsed = append(parsed, ma.StringCast(a))
		}
		if n := len(placesOf(parsed)); n != c.places {
			t.Errorf("%s: %d places, want %d", c.addrs, n, c.places)
		}
		v, err := owner.Invite(InviteOptions{Run: testRun, Addrs: addrs}, time.Now())
		if err != nil {
			t.Errorf("%s: %v", c.addrs, err)
			continue
		}
		again, err := ParseInvite(v.String())
		if err != nil || strings.Join(again.Addrs, " ") != strings.Join(addrs, " ") {
			t.Errorf("%s: reads back as %v, %v", c.addrs, again.Addrs, err)
		}
		if n := len(v.String()); n > c.chars {
			t.Errorf("%s: %d characters, at most %d are wanted", c.addrs, n, c.chars)
		}
	}
}

// Names in addresses hold nothing that a terminal, a resolver or a proxy obeys.
func TestNamesInAddresses(t *testing.T) {
	at := "/tcp/443/p2p/" + testIdentity(t).ID().String()
	for name, good := range map[string]bool{
		"/dns/pod_7.Example-1.net": true, "/dns4/a.example": true,
		"/dns/a\x1b[2Jb": false, "/dns4/a\r\nb": false, "/dns6/a b": false, "/dns/a:1": false, "/dnsaddr/\u202ea": false,
	} {
		if _, err := ParseAddrs([]string{name + at}); (err == nil) != good {
			t.Errorf("%q: %v, accepted should be %v", name, err, good)
		}
		a, err := ma.NewMultiaddr(name + "/tcp/443")
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range placesOf([]ma.Multiaddr{a}) {
			d := decoder{b: p}
			if readPlace(&d); (d.err == nil) != good {
				t.Errorf("%q in an invite: %v, accepted should be %v", name, d.err, good)
			}
		}
	}
}

// A text that is no invite is not repeated: it may be a secret.
func TestNoInviteIsNotRepeated(t *testing.T) {
	if _, err := ParseInvite("hunter2-and-more-of-a-secret"); err == nil || strings.Contains(err.Error(), "hunter2-a") {
		t.Errorf("%v", err)
	}
}

// An invite names announced addresses and one more place.
func TestFirstPlaces(t *testing.T) {
	addrs := []ma.Multiaddr{
		ma.StringCast("/dns/a.example/tcp/443/tls/ws"), ma.StringCast("/ip4/203.0.113.7/tcp/1"),
		ma.StringCast("/ip4/192.168.1.2/udp/4001/quic-v1"), ma.StringCast("/ip4/192.168.1.2/tcp/4001"), ma.StringCast("/ip4/10.0.0.1/tcp/4001"),
	}
	if got := FirstPlaces(addrs, 2, 2); len(got) != 4 || !got[3].Equal(addrs[3]) {
		t.Errorf("%v", got)
	}
	if got := FirstPlaces(addrs[2:], 1, 0); len(got) != 2 {
		t.Errorf("%v", got)
	}
}
