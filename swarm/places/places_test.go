package places

import (
	"net/netip"
	"testing"
)

// fill takes places for an address until there is none, and returns how many it got.
func fill(p *Places, at netip.Addr) (n int) {
	for p.Take(at) {
		n++
	}
	return n
}

// address returns the n-th IPv4 address.
func address(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}) }

// However few addresses are greedy, one after the other or in turn, the next one gets a place.
func TestGreedyAddressesLeaveRoom(t *testing.T) {
	for _, greedy := range []int{1, 2, 4, 16, 31} {
		after := New(128, 64)
		for n := range greedy {
			fill(after, address(n))
		}
		inTurn := New(128, 64)
		for round := true; round; {
			round = false
			for n := range greedy {
				round = inTurn.Take(address(n)) || round
			}
		}
		for _, p := range []*Places{after, inTurn} {
			if p.Full(address(greedy)) || !p.Take(address(greedy)) {
				t.Errorf("%d addresses hold all %d places", greedy, p.Used())
			}
		}
	}
	for total, want := range map[int]int{256: 64, 128: 48, 64: 24} {
		if n := fill(New(total, 64), address(1)); n != want {
			t.Errorf("one address got %d of %d places, want %d", n, total, want)
		}
	}
}

// Places that are given back are there again, and no more than there were.
func TestGive(t *testing.T) {
	p := New(8, 8)
	a, home := address(1), netip.MustParseAddr("::ffff:127.0.0.1")
	for range 3 {
		if n := fill(p, a); n != 3 {
			t.Fatalf("%d places, want 3", n)
		}
		if n := fill(p, home); n != 5 {
			t.Fatalf("%d places for this machine, want the other 5", n)
		}
		for range 3 {
			p.Give(a)
		}
		for range 5 {
			p.Give(home)
		}
	}
	if p.Used() != 0 || len(p.held) != 0 {
		t.Errorf("%d places taken by %d addresses after all were given back", p.Used(), len(p.held))
	}
}

// What counts as one address.
func TestBlock(t *testing.T) {
	for at, want := range map[string]string{
		"192.0.2.7": "192.0.2.7/32", "::ffff:192.0.2.7": "192.0.2.7/32", "2001:db8:1:2::3": "2001:db8:1::/48", "fe80::1%eth0": "fe80::/48",
	} {
		if got := Block(netip.MustParseAddr(at)); got.String() != want {
			t.Errorf("%s counts as %s, want %s", at, got, want)
		}
	}
	if got := Block(netip.Addr{}); got.IsValid() {
		t.Errorf("no address counts as %s", got)
	}
}
