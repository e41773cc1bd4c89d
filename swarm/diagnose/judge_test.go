package diagnose

import (
	"net/netip"
	"syscall"
	"testing"

	"github.com/libp2p/go-libp2p/core/peer"

	"pnode/swarm/tcp"
)

var place = netip.MustParseAddrPort("192.0.2.1:4001")

// after returns a test of a transport to place that found something.
func after(part Part, f Finding) Test {
	o := outcome{finding: f, err: syscall.ECONNRESET, peer: peer.ID("other")}
	var t Test
	switch part {
	case UDP:
		t = common("UDP", place, "contact", o)
		t.Did = "QUIC handshake"
	case TCP, WebSocket:
		t = explainTCP(place, "contact", o)
		t.Did = "connect, TLS handshake"
	case Proxy:
		t = explainProxy(&tcp.ProxyError{Target: place.String(), Answer: tcp.WantsLogin, Status: "407 Proxy Authentication Required"})
		if f == Works {
			t = Test{Result: OK, Finding: Works, Says: "the proxy connects"}
		}
		t.Did = "CONNECT " + place.String()
	}
	t.Part, t.Target = part, place.String()
	if part == Proxy {
		t.Target = "192.0.2.9:3128"
	}
	return t
}

// TestVerdicts: each combination of findings gives the sentence that a person needs, and what to do.
func TestVerdicts(t *testing.T) {
	for name, c := range verdicts {
		r := Judge(c.tests)
		if r.Verdict != c.says || r.Do != c.do || r.Cause != c.cause || r.Over != c.over || r.Joins != (c.over != "") {
			t.Errorf("%s: joins %v over %q, cause %q:\n%s\n%s\nwant %q, %q:\n%s\n%s", name, r.Joins, r.Over, r.Cause, r.Verdict, r.Do, c.over, c.cause, c.says, c.do)
		}
	}
}
