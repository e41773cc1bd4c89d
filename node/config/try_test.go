package config

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pnode/swarm/listen"
)

func TestTryListenExplains(t *testing.T) {
	if err := (Config{Announce: "a:1", Local: 2}).TryListen(); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "--announce is a:1: want none") {
		t.Errorf("several nodes that announce one address: %v", err)
	}
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
		{"192.0.2.7:0", ErrInvalid, "--listen is 192.0.2.7:0: want an address of this machine: none, as in :4001, for every interface, 127.0.0.1"}, // TEST-NET-1 of RFC 5737
		{"example.org:4001", ErrInvalid, "not a name"},
		{"4001", ErrInvalid, `want "host:port"`},
		{":70000", ErrInvalid, "a port from 0 to 65535"},
		{u.LocalAddr().String(), listen.ErrPortInUse, "(UDP): stop the program"},
		{l.Addr().String(), listen.ErrPortInUse, "(TCP): stop the program"},
	} {
		err := Config{Listen: tt.listen}.TryListen()
		if !errors.Is(err, tt.err) || (err != nil) != (tt.err != nil) {
			t.Errorf("%q: got %v, want %v", tt.listen, err, tt.err)
		}
		if err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %q lacks %q", tt.listen, err, tt.want)
		}
	}
}

func TestMetricsAddr(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, c := range []struct{ given, at, refused string }{
		{given: "", at: ""},
		{given: "0", at: "127.0.0.1:0"},
		{given: "127.0.0.1:0", at: "127.0.0.1:0"},
		{given: ":0", at: ":0"},
		{given: "here", refused: "want PORT for programs of this machine, or HOST:PORT"},
		{given: "127.0.0.1", refused: "want PORT"},
		{given: "70000", refused: "want PORT"},
		{given: "127.0.0.1:http", refused: "want PORT"},
		{given: taken.Addr().String(), at: taken.Addr().String(), refused: "name another port"},
	} {
		config := Config{Metrics: c.given}
		at, _ := config.MetricsAddr()
		err := config.TryMetrics()
		if at != c.at || (err == nil) != (c.refused == "") {
			t.Errorf("%q: %q, %v; want %q", c.given, at, err, c.at)
		}
		wraps := ErrInvalid
		if c.given == taken.Addr().String() { // a service tries again
			wraps = listen.ErrPortInUse
		}
		if err != nil && (!errors.Is(err, wraps) || wraps != ErrInvalid && errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "--metrics is "+c.given) || !strings.Contains(err.Error(), c.refused)) {
			t.Errorf("%q: %v, want %q", c.given, err, c.refused)
		}
	}
}

func TestTryFilesExplains(t *testing.T) {
	dir := t.TempDir()
	for _, bad := range []struct{ path, want string }{
		{filepath.Join(dir, "missing", "t.json"), "no such file or directory; name a file in a folder that is there"},
		{dir, "is a directory"},
	} {
		err := Config{Trace: bad.path, CSV: bad.path}.TryFiles()
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "--trace is "+bad.path+": "+bad.want) || !strings.Contains(err.Error(), "--csv is "+bad.path+": "+bad.want) {
			t.Errorf("%s: %v", bad.path, err)
		}
	}
}

func TestTryFilesLeavesThingsAsTheyWere(t *testing.T) {
	dir := t.TempDir()
	kept := filepath.Join(dir, "kept.json")
	if err := os.WriteFile(kept, []byte("[]"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"", kept, filepath.Join(dir, "new.json"), os.DevNull} {
		if err := (Config{Trace: path, CSV: path}).TryFiles(); err != nil {
			t.Errorf("%q: %v", path, err)
		}
	}
	if text, err := os.ReadFile(kept); err != nil || string(text) != "[]" {
		t.Errorf("the file that was there holds %q: %v", text, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("the folder holds %v: %v", entries, err)
	}
}
