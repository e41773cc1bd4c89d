package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pnode/swarm/netlab"
)

// leaderOf returns the name of the member that leads, as the node in a folder of a host knows it.
func leaderOf(t *testing.T, host *netlab.Host, dir string) string {
	t.Helper()
	p := launchOn(t, host, "status", "--json", "--dir", dir)
	p.finish(0)
	var said struct {
		Roster []struct {
			Name   string
			Leader bool
		}
	}
	if err := json.Unmarshal(p.stdout.Bytes(), &said); err != nil {
		t.Fatalf("status: %v", err)
	}
	for _, m := range said.Roster {
		if m.Leader {
			return m.Name
		}
	}
	t.Fatalf("nobody leads: %s", p.stdout.Bytes())
	return ""
}

// TestAKillAcrossNetworks: of three machines, 5 ms from each other, one that does not lead is killed, then in another run the
// leader. No kernel tells the others; they go on with the losses of one process, and no step is done twice. The killed one
// comes back.
func TestAKillAcrossNetworks(t *testing.T) {
	if testing.Short() {
		t.Skip("real processes take minutes")
	}
	t.Parallel()
	const steps, killedAt = 24, 6
	names := []string{"0", "1", "2"}
	for _, leads := range []bool{false, true} {
		t.Run(map[bool]string{false: "a member", true: "the leader"}[leads], func(t *testing.T) {
			t.Parallel()
			lab, file, device := netlab.New(t), runFile(t, steps), deviceFile(t, "20GFLOP/s")
			var hosts []*netlab.Host
			var members []*process
			var dirs []string
			come := func(i int, args ...string) *process {
				return launchOn(t, hosts[i], append(args, "--dir", dirs[i], "--name", names[i], "--emulate", device, "--json", "--log-level", "info")...)
			}
			for _, name := range names {
				hosts = append(hosts, lab.Host(name, netlab.Public, netlab.Line{Rate: 100e6, Delay: 2500 * time.Microsecond}))
				dirs = append(dirs, t.TempDir())
			}
			members = append(members, come(0, "train", "--config", file, "--voters", "any", "--min-nodes", "3", "--replicas", "1", "--stages", "3",
				"--checkpoint-every", "1000", "--listen", fmt.Sprintf("0.0.0.0:%d", netlab.Port)))
			invite := members[0].stderr.await(t, `pnode join (pnode1-\S+)`)[1]
			for i := 1; i < len(names); i++ {
				members = append(members, come(i, "join", invite, "--listen", fmt.Sprintf("0.0.0.0:%d", netlab.Port)))
			}
			before := members[1].until(killedAt).Generation
			victim := slices.Index(names, leaderOf(t, hosts[0], dirs[0]))
			if !leads {
				victim = (victim + 1) % len(names)
			}
			lives := members[(victim+1)%len(names)]
			lives.until(killedAt)
			members[victim].kill()
			killed := time.Now()
			for lives.until(lives.last.Step+1).Generation <= before {
			}
			t.Logf("the next new step came %v after the kill", time.Since(killed).Round(time.Second/10))
			again := []string{"join"}
			if victim == 0 {
				again = []string{"train", "--resume"}
			}
			members = append(members, come(victim, again...))
			want := alone(t, file, steps)
			for i, m := range members {
				if i == victim {
					continue
				}
				for s, loss := range m.finish(0) {
					if want[s] != loss {
						t.Errorf("step %d has loss %s, alone %s", s, loss, want[s])
					}
				}
			}
			if got := lives.losses; len(got) != steps || lives.repeated > 0 {
				t.Errorf("%d steps were done, %d of them again", len(got), lives.repeated)
			}
			if t.Failed() {
				var logs []string
				for _, m := range members {
					logs = append(logs, m.stderr.String())
				}
				t.Log(strings.Join(logs, "\n\n"))
			}
		})
	}
}
