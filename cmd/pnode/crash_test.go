package main

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"
)

// TestAWholeSwarmIsKilledAndComesBackWithOtherNodes kills all of seven nodes at once, and goes on with three of their folders:
// the founder's and two other voters', which are a majority of the five that vote, at other addresses. Then eight machines
// join anew, which makes eleven. All losses are those of one process.
func TestAWholeSwarmIsKilledAndComesBackWithOtherNodes(t *testing.T) {
	t.Parallel()
	const never = 100_000 // the last step
	file, device := runFile(t, never), deviceFile(t, "1GFLOP/s")
	dirs := map[string]string{}
	join := func(name string, args ...string) *process {
		return start(t, append([]string{"join", "--dir", dirs[name], "--name", name, "--threads", "1", "--emulate", device}, args...)...)
	}
	dirs["desk"] = t.TempDir()
	founder := start(t, "train", "--config", file, "--dir", dirs["desk"], "--json", "--name", "desk", "--voters", "any", "--min-nodes", "7",
		"--threads", "1", "--listen", "127.0.0.1:0", "--emulate", device)
	invite := founder.stderr.await(t, `pnode join (pnode1-\S+)`)[1]
	all := []*process{founder}
	for _, name := range []string{"b", "c", "d", "e", "f", "g"} {
		dirs[name] = t.TempDir()
		all = append(all, join(name, invite))
	}
	founder.until(8)
	voters := votersOf(t, dirs["desk"], 5)
	founder.until(founder.last.Step + 3)
	for _, p := range all {
		p.kill()
	}
	got := founder.losses

	begun := time.Now()
	back := start(t, "train", "--resume", "--dir", dirs["desk"], "--json", "--threads", "1", "--emulate", device)
	all = []*process{back}
	for _, name := range voters {
		if name != "desk" && len(all) < 3 {
			all = append(all, join(name, "--listen", "127.0.0.1:0"))
		}
	}
	next := back.until(1)
	t.Logf("7 nodes, killed after step %d; 3 nodes: step %d came %.1f s after they were started", founder.last.Step, next.Step, time.Since(begun).Seconds())
	if next.Step > founder.last.Step+1 {
		t.Errorf("it goes on at step %d, the newest before was %d", next.Step, founder.last.Step)
	}
	back.until(founder.last.Step + 5)

	again := start(t, "invite", "--dir", dirs["desk"], "--uses", "8")
	again.finish(0)
	invite = strings.TrimSpace(again.stdout.String())
	begun = time.Now()
	for _, name := range []string{"h", "i", "j", "k", "l", "m", "n", "o"} {
		dirs[name] = t.TempDir()
		all = append(all, join(name, invite))
	}
	for _, p := range all[3:] {
		p.stderr.await(t, `generation \d+`)
	}
	before := back.last.Step
	t.Logf("11 nodes: step %d came %.1f s after 8 had begun to join", back.until(before+5).Step, time.Since(begun).Seconds())
	back.kill()
	maps.Copy(got, back.losses)
	want := start(t, "train", "--config", file, "--dir", t.TempDir(), "--json")
	for want.last.Step < back.last.Step {
		s := want.until(want.last.Step + 1)
		if got[s.Step] != s.Loss {
			t.Errorf("step %d has loss %q, want %s", s.Step, got[s.Step], s.Loss)
		}
	}
	want.kill()
}

// votersOf waits until so many members vote, and returns their names.
func votersOf(t *testing.T, dir string, count int) []string {
	t.Helper()
	deadline := time.Now().Add(endToEndTimeout)
	for time.Now().Before(deadline) {
		status := start(t, "status", "--json", "--dir", dir)
		status.finish(0)
		var said struct{ Votes string }
		if err := json.Unmarshal(status.stdout.Bytes(), &said); err != nil {
			t.Fatal(err)
		}
		who, _, several := strings.Cut(said.Votes, " vote: ")
		who = strings.ReplaceAll(strings.ReplaceAll(who, " (an owner's node)", ""), " and ", ", ")
		if names := strings.Split(who, ", "); several && len(names) == count {
			return names
		}
		time.Sleep(time.Second) // votes move within seconds
	}
	t.Fatalf("there are never %d voters", count)
	return nil
}
