package listen

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
)

func TestListenAddresses(t *testing.T) {
	for _, bad := range []string{"", "4001", "example.org:1", "127.0.0.1:70000"} {
		if _, err := Parse(bad); err == nil {
			t.Errorf("%q accepted", bad)
		}
	}
	for in, want := range map[string]string{
		":1": "[0.0.0.0:1 [::]:1]", "0.0.0.0:1": "[0.0.0.0:1]", "localhost:2": "[127.0.0.1:2]", "[::]:3": "[[::]:3]",
	} {
		if a, err := Parse(in); err != nil || fmt.Sprint(a) != want || Every(a) != (in == ":1") {
			t.Errorf("%q: %s %v, want %s", in, a, err, want)
		}
	}
}

// One port is free on all addresses, for UDP and for TCP.
func TestFree(t *testing.T) {
	every, err := Parse(":0")
	if err != nil {
		t.Fatal(err)
	}
	free, err := Free(every)
	if err != nil || len(free) == 0 {
		t.Fatal(free, err)
	}
	for _, at := range free {
		if at.Port() == 0 || at.Port() != free[0].Port() {
			t.Errorf("ports differ: %v", free)
		}
	}
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	at := taken.Addr().(*net.TCPAddr).AddrPort()
	if _, err := Free([]netip.AddrPort{at}); !errors.Is(err, ErrPortInUse) {
		t.Errorf("a port that is taken for TCP: %v", err)
	}
	if _, err := Free([]netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:0")}); !errors.Is(err, ErrElsewhere) {
		t.Errorf("another machine's address: %v", err)
	}
}
