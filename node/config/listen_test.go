package config

import (
	"errors"
	"net"
	"strings"
	"testing"
)

func TestTryListenExplains(t *testing.T) {
	u, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, tt := range []struct {
		listen string
		err    error
		want   string
	}{
		{"", nil, ""},
		{"127.0.0.1:0", nil, ""},
		{"localhost:0", nil, ""},
		{":0", nil, ""},
		{"192.0.2.7:0", ErrInvalid, "listen is 192.0.2.7:0: want an address of this machine: 0.0.0.0 for every interface, 127.0.0.1"}, // TEST-NET-1 of RFC 5737
		{"example.org:4001", ErrInvalid, "not a name"},
		{"4001", ErrInvalid, `want "host:port"`},
		{":70000", ErrInvalid, "a port from 0 to 65535"},
		{u.LocalAddr().String(), ErrPortInUse, "(UDP): stop the program"},
		{l.Addr().String(), ErrPortInUse, "(TCP): stop the program"},
	} {
		err := TryListen(tt.listen)
		if !errors.Is(err, tt.err) || (err != nil) != (tt.err != nil) {
			t.Errorf("%q: got %v, want %v", tt.listen, err, tt.err)
		}
		if err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %q lacks %q", tt.listen, err, tt.want)
		}
	}
}
