package main

import (
	"strings"
	"testing"

	"pnode/swarm/netlab"
)

// An owner behind a NAT that nobody can dial invites to its address through a member that relays. Who comes by it, behind
// another NAT that no hole goes through, says so and trains with the owner.
func TestJoinThroughARelay(t *testing.T) {
	if testing.Short() {
		t.Skip("real processes take minutes")
	}
	t.Parallel()
	const steps = 10
	lab, file, dir := netlab.New(t), smallRun(t, steps), t.TempDir()
	full, half := smallDevice(t, "1MB"), smallDevice(t, "88MB")
	public, home := lab.Host("public", netlab.Public), lab.Host("home", netlab.PortRestricted)
	p := launchOn(t, public, "train", "--config", file, "--dir", dir, "--json", "--name", "public",
		"--replicas", "1", "--stages", "2", "--min-nodes", "3", "--listen", ":4001", "--emulate", full, "--log-level", "info")
	p.stderr.await(t, `pnode join (pnode1-\S+)`)
	owner := t.TempDir()
	a := launchOn(t, home, "join", printed(t, public, "invite", "--owner", "--dir", dir), "--dir", owner, "--name", "home", "--emulate", half, "--log-level", "info")
	a.stderr.await(t, "reached through relays")
	a.stderr.await(t, "state: (standby|waiting for the first plan)")
	invite := printed(t, home, "invite", "--dir", owner)
	b := launchOn(t, lab.Host("away", netlab.Symmetric), "join", invite, "--dir", t.TempDir(),
		"--name", "away", "--emulate", half, "--log-level", "info")
	b.stderr.await(t, "joined through a relay")
	same(t, "through a relay", p.finish(0), alone(t, file, steps))
	if t.Failed() {
		t.Logf("public:\n%s\nhome:\n%s\naway:\n%s", p.stderr, a.stderr, b.stderr)
	}
}

// printed returns what a command on a host prints.
func printed(t *testing.T, h *netlab.Host, args ...string) string {
	t.Helper()
	c := launchOn(t, h, args...)
	c.finish(0)
	return strings.TrimSpace(c.stdout.String())
}
