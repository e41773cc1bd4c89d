package main

import (
	"fmt"
	"testing"

	"pnode/swarm/netlab"
)

// TestAnOwnerThatWasCutOffGetsTheModel takes the owner's line away while its machine goes on running. The others finish the
// run and stay. When the line is back the owner gets the whole model, and all end.
func TestAnOwnerThatWasCutOffGetsTheModel(t *testing.T) {
	if testing.Short() {
		t.Skip("real processes take minutes")
	}
	t.Parallel()
	const steps = 60
	lab, file, device := netlab.New(t), runFile(t, steps), deviceFile(t, "4GFLOP/s")
	desk := lab.Host("desk", netlab.Public)
	owner := launchOn(t, desk, "train", "--config", file, "--dir", t.TempDir(), "--json", "--name", "desk", "--voters", "any", "--min-nodes", "3",
		"--stages", "3", "--replicas", "1", "--listen", "0.0.0.0:4001", "--emulate", device)
	invite := owner.stderr.await(t, `pnode join (pnode1-\S+)`)[1]
	var others []*process
	for _, name := range []string{"left", "right"} {
		others = append(others, launchOn(t, lab.Host(name, netlab.Public), "join", invite, "--dir", t.TempDir(), "--json", "--name", name, "--emulate", device))
	}
	owner.until(20)
	desk.IP("link set wan down")
	for _, p := range others {
		p.stderr.await(t, `this node stays until its owner, desk, has the whole model`)
	}
	desk.IP("link set wan up", fmt.Sprintf("route replace default via %s", desk.Addr().Prev()))
	owner.stderr.await(t, fmt.Sprintf("model: the whole model of step %d is here", steps))
	for _, p := range append(others, owner) {
		p.finish(0)
	}
	same(t, "without its owner", others[0].losses, alone(t, file, steps))
}
