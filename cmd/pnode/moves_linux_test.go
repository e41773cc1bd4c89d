package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
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
	"another address":                           {netlab.Public, false, false, func(h *netlab.Host) { h.Renumber() }},
	"address lost for 3 s":                      {netlab.Public, false, false, loseAddress},
	"address lost for 3 s, TCP alone":           {netlab.Public, false, true, loseAddress},
	"another address of the founder":            {netlab.Public, true, false, func(h *netlab.Host) { h.Renumber() }},
	"another address of the founder, TCP alone": {netlab.Public, true, true, func(h *netlab.Host) { h.Renumber() }},
	"another address, TCP alone":                {netlab.Public, false, true, func(h *netlab.Host) { h.Renumber() }},
	"another address of the NAT":                {netlab.PortRestricted, false, false, func(h *netlab.Host) { h.Renumber() }},
	"another address of a NAT, TCP alone":       {netlab.UDPBlocked, false, true, func(h *netlab.Host) { h.Renumber() }},
	"other ports of the NAT":                    {netlab.PortRestricted, false, false, func(h *netlab.Host) { h.Forget() }},
	"other ports of a NAT, TCP alone":           {netlab.UDPBlocked, false, true, func(h *netlab.Host) { h.Forget() }},
}

// loseAddress takes a host off its network for 3 s, after which it has another address.
func loseAddress(h *netlab.Host) {
	h.IP("link set wan down")
	time.Sleep(3 * time.Second)
	h.IP("link set wan up", fmt.Sprintf("route replace default via %s", h.Addr().Prev()))
	h.Renumber()
}

// stayedTogether fails the test where the founder took a member for lost, or did a step again.
func stayedTogether(t *testing.T, founder *process) {
	t.Helper()
	if founder.repeated > 0 || strings.Contains(founder.stderr.String(), "a node is gone") {
		t.Errorf("%d steps were repeated; the founder says:\n%s", founder.repeated, founder.stderr)
	}
}

// inLanes tests the cases of these names in two lanes, beside other tests: most of their time is waiting.
func inLanes(t *testing.T, names []string, test func(t *testing.T, i int)) {
	const lanes = 2
	for lane := range lanes {
		t.Run(fmt.Sprint("lane ", lane+1), func(t *testing.T) {
			t.Parallel()
			for i := lane; i < len(names); i += lanes {
				t.Run(names[i], func(t *testing.T) { test(t, i) })
			}
		})
	}
}

// A member whose address changes, or its NAT's, stays in the run: no step is lost or repeated, and the losses are those of
// one undisturbed machine, to the bit.
func TestMovingMembers(t *testing.T) {
	if testing.Short() {
		t.Skip("real processes take minutes")
	}
	t.Parallel()
	names := slices.Sorted(maps.Keys(moves))
	inLanes(t, names, func(t *testing.T, i int) {
		name, m := names[i], moves[names[i]]
		const steps, movedAt = 40, 15
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
		p.until(movedAt)
		began := time.Now()
		if m.founder {
			m.move(founder)
		} else {
			m.move(member)
		}
		last, longest := began, time.Duration(0)
		for p.last.Step < steps {
			p.until(p.last.Step + 1)
			now := time.Now()
			longest = max(longest, now.Sub(last))
			last = now
		}
		stayedTogether(t, p)
		t.Logf("%s: longest pause %.1f s, %d more steps in %.1f s", name, longest.Seconds(), p.last.Step-movedAt, time.Since(began).Seconds())
		same(t, name, p.finish(0), alone(t, file, steps))
		if t.Failed() || testing.Verbose() {
			t.Logf("founder:\n%s\nmember:\n%s", p.stderr, other.stderr)
		}
	})
}

// Members that wait for another one longer than their NATs remember what is quiet stay connected. They train when it comes,
// and no step is lost.
func TestMembersOutwaitTheirNATs(t *testing.T) {
	if testing.Short() {
		t.Skip("real processes take minutes")
	}
	t.Parallel()
	const udp, tcp, waits, steps = 5 * time.Second, 10 * time.Second, 25 * time.Second, 10
	for _, kind := range []netlab.Kind{netlab.PortRestricted, netlab.UDPBlocked} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			lab, file := netlab.New(t), smallRun(t, steps)
			founder, full, half := lab.Host("founder", netlab.Public), smallDevice(t, "1MB"), smallDevice(t, "88MB")
			p := launchOn(t, founder, "train", "--config", file, "--dir", t.TempDir(), "--json", "--name", "founder",
				"--replicas", "1", "--stages", "2", "--min-nodes", "3", "--listen", "0.0.0.0:4001", "--emulate", full, "--log-level", "info")
			invite := p.stderr.await(t, `pnode join (pnode1-\S+)`)[1]
			join := func(name string) *process {
				host := lab.Host(name, kind)
				host.Remember(udp, tcp)
				m := launchOn(t, host, "join", invite, "--dir", t.TempDir(), "--name", name, "--emulate", half, "--log-level", "info")
				m.stderr.await(t, "state: (standby|waiting for the first plan)")
				return m
			}
			a := join("a")
			time.Sleep(waits) // it is the time that is tested
			b := join("b")
			p.until(1)
			if strings.Contains(p.stderr.String(), "member disconnected") {
				t.Error("a member was disconnected while it waited")
			}
			p.until(steps)
			stayedTogether(t, p)
			same(t, string(kind), p.finish(0), alone(t, file, steps))
			if t.Failed() {
				t.Logf("founder:\n%s\na:\n%s\nb:\n%s", p.stderr, a.stderr, b.stderr)
			}
		})
	}
}

// Members train whose packets come over another interface than they leave by, over UDP and where TCP alone gets through.
func TestAsymmetricRoutes(t *testing.T) {
	if testing.Short() {
		t.Skip("real processes take minutes")
	}
	t.Parallel()
	const steps = 10
	for name, tcp := range map[string]bool{"UDP": false, "TCP": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lab, file := netlab.New(t), runFile(t, steps)
			founder, member := lab.Host("founder", netlab.Public), lab.Host("member", netlab.Public)
			for _, h := range []*netlab.Host{founder, member} {
				h.Sysctl("net/ipv6/conf/all/disable_ipv6", "1")
				h.Detour()
				if tcp {
					h.IP("rule add ipproto udp prohibit")
				}
			}
			fast := deviceFile(t, "20GFLOP/s")
			p := launchOn(t, founder, "train", "--config", file, "--dir", t.TempDir(), "--json", "--replicas", "1", "--stages", "2",
				"--min-nodes", "2", "--listen", "0.0.0.0:4001", "--emulate", fast)
			invite := p.stderr.await(t, `pnode join (pnode1-\S+)`)[1]
			launchOn(t, member, "join", invite, "--dir", t.TempDir(), "--emulate", fast)
			same(t, name, p.finish(0), alone(t, file, steps))
		})
	}
}

// A founder that listens on both families trains with a machine of IPv6 alone, neither told which.
func TestIPv6MemberOfADualFounder(t *testing.T) {
	if testing.Short() {
		t.Skip("real processes take minutes")
	}
	t.Parallel()
	lab, file := netlab.New(t), runFile(t, 10)
	founder, member := lab.Host("founder", netlab.Public), lab.Host("member", netlab.IPv6)
	fast := deviceFile(t, "20GFLOP/s")
	p := launchOn(t, founder, "train", "--config", file, "--dir", t.TempDir(), "--json", "--replicas", "1", "--stages", "2",
		"--min-nodes", "2", "--listen", ":4001", "--emulate", fast)
	invite := p.stderr.await(t, `pnode join (pnode1-\S+)`)[1]
	launchOn(t, member, "join", invite, "--dir", t.TempDir(), "--emulate", fast)
	same(t, "over IPv6", p.finish(0), launch(t, "train", "--config", file, "--dir", t.TempDir(), "--json").finish(0))
}
