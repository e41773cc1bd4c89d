package progress

import (
	"testing"
	"time"

	"pnode/node/api"
	"pnode/planner/plan"
	"pnode/swarm/diagnose"
)

func TestDiagnosis(t *testing.T) {
	got := Diagnosis(diagnose.Judge([]diagnose.Test{
		{Part: diagnose.UDP, Target: "192.0.2.1:4001", Did: "QUIC handshake", Result: diagnose.Fails, Finding: diagnose.Silent, Says: "no answer in 5 s", Do: "open it", Took: 5 * time.Second, Seconds: 5},
		{Part: diagnose.TCP, Target: "192.0.2.1:4001", Did: "connect, TLS handshake", Result: diagnose.OK, Says: "the contact answers", Took: time.Millisecond, Seconds: .001},
		{Part: diagnose.Proxy, Result: diagnose.NotNeeded, Says: "none"},
	}))
	want := `this machine can join: UDP to 192.0.2.1:4001 gets no answer, TCP works: data will go over TCP
what to do: open it

test   of              result      seconds  found
udp    192.0.2.1:4001  fails       5.0      QUIC handshake: no answer in 5 s
tcp    192.0.2.1:4001  ok          0.0      connect, TLS handshake: the contact answers
proxy                  not needed           none
`
	if got != want {
		t.Errorf("\n%swant\n%s", got, want)
	}
}

func TestLinks(t *testing.T) {
	st := api.Status{
		Roster: []api.Member{{Peer: "a", Name: "desk"}, {Peer: "b", Name: "spot"}},
		Links: []api.LinkStatus{
			{From: "a", To: "b", BytesPerS: 11_750_000, Transport: plan.QUIC},
			{From: "b", To: "a", Transport: plan.TCP, Reason: "UDP gets no answer"},
			{From: "b", To: "a", Transport: plan.Relay, RTTMS: 40},
			{From: "a", To: "b", RTTMS: 3},
			{From: "b", To: "a"},
		},
	}
	for want, st := range map[string]api.Status{
		"desk -> spot on QUIC: 94.0 Mbit/s\nspot -> desk on TCP: UDP gets no answer\n" +
			"spot -> desk through a relay: 40 ms\ndesk -> spot: 3 ms\nspot -> desk\n": st,
		"no links: no two nodes have a part in the plan\n": {},
	} {
		if got := Links(st); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
