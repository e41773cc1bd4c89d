package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"pnode/node/config"
)

// Where a node listens and what it announces, by what was asked for and what the environment says.
func TestSettleAddresses(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := free.Addr().(*net.TCPAddr).Port // nobody else's while the test runs: taken and given back
	free.Close()
	runpod := []string{"RUNPOD_PUBLIC_IP=203.0.113.7", "RUNPOD_TCP_PORT_22=10022", fmt.Sprintf("RUNPOD_TCP_PORT_%d=40123", port)}
	said := func(parts ...string) []string { return parts }
	for name, c := range map[string]struct {
		cfg       config.Config
		kept      membership
		env       []string
		pnode     string // PNODE_ANNOUNCE
		listen    string
		announced string
		notices   []string
		err       string
		instead   string
	}{
		"nothing":                             {listen: ":0", kept: membership{Listen: ":0"}},
		"given":                               {cfg: config.Config{Announce: "203.0.113.9:5000"}, listen: ":5000", announced: "[203.0.113.9:5000]"},
		"given and kept":                      {cfg: config.Config{Announce: "tcp/a:2"}, kept: membership{Listen: ":1", Announce: "tcp/b:1"}, listen: ":1", announced: "[tcp/a:2]"},
		"kept":                                {kept: membership{Listen: ":1", Announce: "tcp/b:1"}, pnode: "c:1", listen: ":1", announced: "[tcp/b:1]"},
		"proxy, no listen":                    {cfg: config.Config{Announce: "https://a.example"}, err: "want --listen HOST:PORT too"},
		"environment":                         {kept: membership{Listen: ":1"}, pnode: "c:1", listen: ":1", announced: "[c:1]", notices: said("announcing c:1: PNODE_ANNOUNCE")},
		"environment, any port":               {kept: membership{Listen: ":0"}, pnode: "c:4001", listen: ":0", instead: ":4001", announced: "[c:4001]", notices: said("announcing c:4001: PNODE_ANNOUNCE")},
		"environment, any port of one family": {kept: membership{Listen: "0.0.0.0:0"}, pnode: "tcp/c:4001", listen: "0.0.0.0:0", instead: "0.0.0.0:4001", announced: "[tcp/c:4001]", notices: said("announcing tcp/c:4001: PNODE_ANNOUNCE")},
		"environment, proxy":                  {kept: membership{Listen: ":0"}, pnode: "https://a.example", listen: ":0", announced: "[https://a.example:443]", notices: said("announcing https://a.example: PNODE_ANNOUNCE")},
		"environment, bad":                    {kept: membership{Listen: ":1"}, pnode: "c", err: "PNODE_ANNOUNCE is \"c\""},
		"environment, near":                   {kept: membership{Listen: "127.0.0.1:0"}, pnode: "c:1", env: runpod, listen: "127.0.0.1:0"},
		"provider": {
			kept: membership{Listen: ":0"}, env: runpod, listen: ":0", instead: fmt.Sprintf(":%d", port), announced: "[tcp/203.0.113.7:40123]",
			notices: said(fmt.Sprintf("listening on port %d, which the provider forwards: RUNPOD_TCP_PORT_%d", port, port),
				fmt.Sprintf("announcing tcp 203.0.113.7:40123: RUNPOD_TCP_PORT_%d", port)),
		},
		"provider, overridden": {cfg: config.Config{Announce: "found"}, kept: membership{Listen: ":0"}, env: runpod, listen: ":0"},
		"provider, other port": {
			kept: membership{Listen: ":22"}, env: runpod, listen: ":22", announced: "[tcp/203.0.113.7:10022]", notices: said("announcing tcp 203.0.113.7:10022: RUNPOD_TCP_PORT_22"),
		},
		"provider, no port": {
			kept: membership{Listen: ":9"}, env: runpod, listen: ":9", notices: said(fmt.Sprintf("forwards no port to :9 where this node listens, only to %d", port)),
		},
		"provider, bad value": {
			kept: membership{Listen: ":0"}, env: []string{"RUNPOD_PUBLIC_IP=203.0.113.7", "RUNPOD_TCP_PORT_4001=many"}, listen: ":0",
			notices: said(`RUNPOD_TCP_PORT_4001 is "many", want a port from 1 to 65535: left out`),
		},
	} {
		t.Setenv(config.AnnounceEnv, c.pnode)
		var notices []string
		o := opening{cfg: c.cfg, membership: c.kept}
		err := o.settleAddresses(c.env, Output{Notice: func(line string) { notices = append(notices, line) }})
		if c.err != "" {
			if !errors.Is(err, config.ErrInvalid) || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want %q", name, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if o.membership.Listen != c.listen || o.listen != c.instead {
			t.Errorf("%s: listens at %q, %q", name, o.membership.Listen, o.listen)
		}
		if got := fmt.Sprint(o.announce.Addrs); got != "[]" && got != c.announced || got == "[]" && c.announced != "" {
			t.Errorf("%s: announces %s, want %s", name, got, c.announced)
		}
		if len(notices) != len(c.notices) {
			t.Errorf("%s: says %q", name, notices)
			continue
		}
		for i, want := range c.notices {
			if !strings.Contains(notices[i], want) {
				t.Errorf("%s: says %q, want %q", name, notices[i], want)
			}
		}
	}
}

// A folder keeps how fast its node relays until another rate is given, the usual one too.
func TestRelayIsKept(t *testing.T) {
	var kept membership
	for i, c := range []struct {
		given string
		want  int64
	}{{"", 12_500_000}, {"off", 0}, {"", 0}, {"100Mbit/s", 12_500_000}, {"20Mbit/s", 2_500_000}, {"", 2_500_000}} {
		cfg := config.Default()
		if err := cfg.Relay.Set(c.given); err != nil {
			t.Fatal(err)
		}
		o := opening{cfg: cfg, membership: kept}
		if err := o.settleAddresses(nil, Output{Notice: func(string) {}}); err != nil {
			t.Fatal(err)
		}
		if got := o.relay.BytesPerS(); got != c.want {
			t.Errorf("start %d, --relay %q: %d bytes a second, want %d", i, c.given, got, c.want)
		}
		data, err := json.Marshal(o.membership)
		if err != nil {
			t.Fatal(err)
		}
		kept = membership{}
		if err := json.Unmarshal(data, &kept); err != nil {
			t.Fatal(err)
		}
	}
	kept.Relay = "fast"
	if err := (&opening{membership: kept}).settleAddresses(nil, Output{}); !errors.Is(err, config.ErrInvalid) {
		t.Errorf("a bad rate in the folder: %v", err)
	}
}
