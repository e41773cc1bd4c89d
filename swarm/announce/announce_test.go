package announce

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]List{
		"":                      {},
		"found":                 {Bare: true},
		"203.0.113.7:4001":      {Bare: true, Addrs: []Addr{{Both, "203.0.113.7", 4001}}},
		"tcp/203.0.113.7:40123": {Bare: true, Addrs: []Addr{{TCP, "203.0.113.7", 40123}}},
		"udp/[2001:db8::1]:1, tcp/home.example.org:2": {Bare: true, Addrs: []Addr{{UDP, "2001:db8::1", 1}, {TCP, "home.example.org", 2}}},
		"https://Pod-7.example.net":                   {Bare: true, Addrs: []Addr{{HTTPS, "pod-7.example.net", 443}}},
		"https://[2001:db8::1]:8443/":                 {Bare: true, Addrs: []Addr{{HTTPS, "2001:db8::1", 8443}}},
		"only,node-a:4001,node-a:4001":                {Bare: true, Only: true, Addrs: []Addr{{Both, "node-a", 4001}}},
	} {
		got, err := Parse(text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
		for _, a := range got.Addrs {
			if again, err := Parse(a.String()); err != nil || again.Addrs[0] != a {
				t.Errorf("%q reads back as %v, %v", a, again, err)
			}
		}
	}
	many := make([]string, maxAddrs+1)
	for i := range many {
		many[i] = fmt.Sprintf("a:%d", i+1)
	}
	for _, bad := range []string{
		"4001", ":4001", "0.0.0.0:4001", "[::]:4001", "[fe80::1%eth0]:4001", "fe80::1:4001", "a:0", "a:70000", "a b:1", "1.2.3:4",
		"http://a", "https://a/path", "https://u@a", "https://", "sctp/a:1", "only", "a:1,only", "found,a:1", "a:1,,b:2",
		strings.Join(many, ","), strings.Repeat("a.", 120) + "b:1",
	} {
		if l, err := Parse(bad); err == nil || !strings.Contains(err.Error(), "want") && !strings.Contains(err.Error(), "cannot") {
			t.Errorf("%q: %v, %v", bad, l, err)
		}
	}
}

func TestMultiaddrs(t *testing.T) {
	for text, want := range map[string]string{
		"203.0.113.7:4001":      "/ip4/203.0.113.7/udp/4001/quic-v1 /ip4/203.0.113.7/tcp/4001",
		"udp/[2001:db8::1]:1":   "/ip6/2001:db8::1/udp/1/quic-v1",
		"tcp/a.example:2":       "/dns/a.example/tcp/2",
		"https://a.example":     "/dns/a.example/tcp/443/tls/ws",
		"https://192.0.2.1:444": "/ip4/192.0.2.1/tcp/444/tls/ws",
	} {
		l, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(l.Addrs[0].Multiaddrs(), " "); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	l, _ := Parse("https://a,tcp/a:5,udp/b:5")
	if l.Port() != 5 {
		t.Errorf("port %d", l.Port())
	}
	if l, _ = Parse("tcp/a:5,udp/a:6"); l.Port() != 0 {
		t.Errorf("port %d of two", l.Port())
	}
}

func TestMappings(t *testing.T) {
	for _, c := range []struct {
		env      []string
		want     string
		warnings []string // parts
	}{
		{env: []string{"PATH=/bin", "RUNPOD_PUBLIC_IP=203.0.113.7"}},
		{
			env:  []string{"RUNPOD_PUBLIC_IP=203.0.113.7", "RUNPOD_TCP_PORT_22=10022", "RUNPOD_TCP_PORT_4001=40123"},
			want: "22 tcp/203.0.113.7:10022, 4001 tcp/203.0.113.7:40123",
		},
		{ // the same port on both sides
			env:  []string{"RUNPOD_PUBLIC_IP=203.0.113.7", "RUNPOD_TCP_PORT_70001=40124"},
			want: "40124 tcp/203.0.113.7:40124",
		},
		{
			env:  []string{"PUBLIC_IPADDR=203.0.113.8", "VAST_TCP_PORT_4001=33526", "VAST_UDP_PORT_4001=33527", "VAST_TCP_PORT_22=1"},
			want: "22 tcp/203.0.113.8:1, 4001 tcp/203.0.113.8:33526, 4001 udp/203.0.113.8:33527",
		},
		{
			env:      []string{"RUNPOD_PUBLIC_IP=203.0.113.7", "RUNPOD_TCP_PORT_4001=no", "RUNPOD_TCP_PORT_4002=70000", "RUNPOD_TCP_PORT_X=1", "RUNPOD_TCP_PORT_4003="},
			warnings: []string{`RUNPOD_TCP_PORT_4001 is "no", want a port`, `RUNPOD_TCP_PORT_4002 is "70000"`},
		},
		{
			env:      []string{"VAST_TCP_PORT_4001=33526"},
			warnings: []string{`PUBLIC_IPADDR is "", want an IP address: left out`},
		},
	} {
		found, warnings := Mappings(c.env)
		var got []string
		for _, m := range found {
			got = append(got, fmt.Sprintf("%d %s", m.Inside, m.Addr))
		}
		if s := strings.Join(got, ", "); s != c.want {
			t.Errorf("%v: %s, want %s", c.env, s, c.want)
		}
		if len(warnings) != len(c.warnings) {
			t.Errorf("%v: warnings %q", c.env, warnings)
			continue
		}
		for i, w := range c.warnings {
			if !strings.Contains(warnings[i], w) || !strings.Contains(warnings[i], "--announce") {
				t.Errorf("warning %q, want %q", warnings[i], w)
			}
		}
	}
	found, _ := Mappings([]string{"PUBLIC_IPADDR=203.0.113.8", "VAST_TCP_PORT_22=7", "VAST_TCP_PORT_2000=8", "VAST_UDP_PORT_3000=9"})
	if got := Ports(found); !reflect.DeepEqual(got, []uint16{3000, 2000}) {
		t.Errorf("ports to listen on: %v", got)
	}
	if got := At(found, 3000); len(got) != 1 || got[0].Variable != "VAST_UDP_PORT_3000" {
		t.Errorf("at 3000: %v", got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("only,tcp/203.0.113.7:40123,https://a.example:8443,udp/[2001:db8::1]:1")
	f.Fuzz(func(t *testing.T, text string) {
		l, err := Parse(text)
		if err != nil {
			return
		}
		for _, a := range l.Addrs {
			if again, err := Parse(a.String()); err != nil || again.Addrs[0] != a {
				t.Errorf("%q: %v reads back as %v, %v", text, a, again, err)
			}
		}
	})
}
