package main

import (
	"fmt"
	"testing"
	"time"

	"pnode/swarm/netlab"
)

// launchOn is launch on a host of a lab.
func launchOn(t testing.TB, h *netlab.Host, args ...string) *process {
	t.Helper()
	binary, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	return launchBy(t, h.Start, binary, nil, args...)
}

// moves are ways in which a member's address changes while a run goes on.
var moves = map[string]struct {
	kind    netlab.Kind
	founder bool // moves, and not the one that joined
	tcp     bool // alone gets through
	move    func(*netlab.Host)
}{
	"another address": {netlab.Public, false, false, func(h *netlab.Host) { h.Renumber() }},
	"address lost for 3 s": {netlab.Public, false, false, func(h *netlab.Host) {
		h.IP("link set wan down")
		time.Sleep(3 * time.Second)
		h.IP("link set wan up", fmt.Sprintf("route replace default via %s", h.Addr().Prev()))
		h.Renumber()
	}},
	"another address of the founder":            {netlab.Public, true, false, func(h *netlab.Host) { h.Renumber() }},
	"another address of the founder, TCP alone": {netlab.Public, true, true, func(h *netlab.Host) { h.Renumber() }},
	"another address, TCP alone":                {netlab.Public, false, true, func(h *netlab.Host) { h.Renumber() }},
	"another address of the NAT":                {netlab.PortRestricted, false, false, func(h *netlab.Host) { h.Renumber() }},
	"another address of a NAT, TCP alone":       {netlab.UDPBlocked, false, true, func(h *netlab.Host) { h.Renumber() }},
	"other ports of the NAT":                    {netlab.PortRestricted, false, false, func(h *netlab.Host) { h.Forget() }},
}

// A member whose address changes, or its NAT's, stays in the run: no step is lost or repeated, and the losses are those of
// one undisturbed machine, to the bit.
func TestMovingMembers(t *testing.T) {
	if testing.Short() {
		t.Skip("real processes take minutes")
	}
	for name, m := range moves {
		t.Run(name, func(t *testing.T) {
			const steps, movedAt = 60, 20
			lab, file := netlab.New(t), runFile(t, steps)
			founder, member := lab.Host("founder", netlab.Public), lab.Host("member", m.kind)
			for _, h := range []*netlab.Host{founder, member} {
				h.Sysctl("net/ipv6/conf/all/disable_ipv6", "1") // or they go on over that
				if m.tcp {
					h.IP("rule add ipproto udp prohibit")
				}
			}
			slow := deviceFile(t, "2GFLOP/s")
			p := launchOn(t, founder, "train", "--config", file, "--dir", t.TempDir(), "--json", "--name", "founder",
				"--replicas", "1", "--stages", "2", "--min-nodes", "2", "--listen", "0.0.0.0:4001", "--emulate", slow, "--log-level", "info")
			invite := p.stderr.await(t, `pnode join (pnode1-\S+)`)[1]
			other := launchOn(t, member, "join", invite, "--dir", t.TempDir(), "--name", "member", "--emulate", slow, "--log-level", "info")
			before := p.until(movedAt)
			began := time.Now()
			if m.founder {
				m.move(founder)
			} else {
				m.move(member)
			}
			last, longest := began, time.Duration(0)
			for p.last.Step < steps {
				s := p.until(p.last.Step + 1)
				now := time.Now()
				longest = max(longest, now.Sub(last))
				last = now
				if s.Generation != before.Generation {
					t.Errorf("step %d is of generation %d, those before of %d: steps were lost\n%s\n%s", s.Step, s.Generation, before.Generation, p.stderr, other.stderr)
					break
				}
			}
			t.Logf("%s: longest pause %.1f s, %d more steps in %.1f s", name, longest.Seconds(), p.last.Step-movedAt, time.Since(began).Seconds())
			same(t, name, p.finish(0), start(t, "train", "--config", file, "--dir", t.TempDir(), "--json").finish(0))
			if t.Failed() || testing.Verbose() {
				t.Logf("founder:\n%s\nmember:\n%s", p.stderr, other.stderr)
			}
		})
	}
}

// A founder that listens on both families trains with a machine of IPv6 alone, neither told which.
func TestIPv6MemberOfADualFounder(t *testing.T) {
	if testing.Short() {
		t.Skip("real processes take minutes")
	}
	lab, file := netlab.New(t), runFile(t, 10)
	founder, member := lab.Host("founder", netlab.Public), lab.Host("member", netlab.IPv6)
	fast := deviceFile(t, "20GFLOP/s")
	p := launchOn(t, founder, "train", "--config", file, "--dir", t.TempDir(), "--json", "--replicas", "1", "--stages", "2",
		"--min-nodes", "2", "--listen", ":4001", "--emulate", fast)
	invite := p.stderr.await(t, `pnode join (pnode1-\S+)`)[1]
	launchOn(t, member, "join", invite, "--dir", t.TempDir(), "--emulate", fast)
	same(t, "over IPv6", p.finish(0), launch(t, "train", "--config", file, "--dir", t.TempDir(), "--json").finish(0))
}
