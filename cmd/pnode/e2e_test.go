package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// These tests run real processes of the real binary on loopback: what a user does, and
// what happens to a user. They compare losses as text, which holds every bit.

// references holds the losses of uninterrupted runs in one process, by all of their run.yaml but the text's place.
var references = struct {
	sync.Mutex
	losses map[string]map[int]json.Number
}{losses: map[string]map[int]json.Number{}}

// alone returns the losses of one process, uninterrupted, on what runFile or smallRun writes.
func alone(t testing.TB, file string, steps int) map[int]json.Number {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, run, _ := strings.Cut(string(text), "\n") // the text's place stands first
	references.Lock()
	defer references.Unlock()
	if references.losses[run] == nil {
		losses := launch(t, "train", "--config", file, "--dir", t.TempDir(), "--json").finish(0)
		if len(losses) != steps {
			t.Fatalf("%d steps, want %d", len(losses), steps)
		}
		references.losses[run] = losses
	}
	return references.losses[run]
}

// TestTrainKillResume is the smoke test of the quick suite: of three processes one is killed, the
// others go on, are interrupted, and all are resumed, with the losses of one process.
func TestTrainKillResume(t *testing.T) {
	t.Parallel()
	const steps = 30
	file, dir := runFile(t, steps), t.TempDir()
	p := launch(t, "train", "--config", file, "--dir", dir, "--json", "--local", "3", "--replicas", "1", "--stages", "3")
	pid := p.stderr.await(t, `-1: pid (\d+)`)
	before := p.until(6)
	kill(t, pid[1])
	for p.until(p.last.Step+1).Generation == before.Generation {
	}
	p.interrupt()
	first := p.finish(0)
	if len(first) >= steps {
		t.Fatal("the run was over before the interrupt")
	}
	rest := launch(t, "train", "--resume", "--dir", dir, "--json").finish(0)
	if _, repeated := rest[len(first)]; repeated {
		t.Errorf("step %d was done again: the interrupt lost it", len(first))
	}
	maps.Copy(rest, first)
	same(t, "killed, interrupted and resumed", rest, alone(t, file, steps))
}

func TestInterruptAndResumeGiveTheSameLosses(t *testing.T) {
	t.Parallel()
	const steps = 60
	file, dir := runFile(t, steps), t.TempDir()
	p := start(t, "train", "--config", file, "--dir", dir, "--json")
	p.until(7)
	p.interrupt()
	first := p.finish(0)
	if len(first) >= steps {
		t.Fatal("the run was over before the interrupt")
	}
	start(t, "checkpoints", "verify", "--dir", dir).finish(0)
	rest := start(t, "train", "--resume", "--dir", dir, "--json").finish(0)
	if _, repeated := rest[len(first)]; repeated {
		t.Errorf("step %d was done again: the interrupt lost it", len(first))
	}
	maps.Copy(rest, first)
	same(t, "interrupted and resumed", rest, alone(t, file, steps))
}

func TestThreeProcessesGiveTheLossesOfOne(t *testing.T) {
	t.Parallel()
	const steps = 8
	file := runFile(t, steps)
	want := alone(t, file, steps)
	dir := t.TempDir()
	p := start(t, "train", "--config", file, "--dir", dir, "--json", "--local", "3", "--replicas", "1", "--stages", "3")
	got := p.finish(0)
	start(t, "train", "--resume", "--dir", filepath.Join(dir, "node-1")).finish(exitFinished)
	if len(got) != steps {
		t.Errorf("%d steps, want %d", len(got), steps)
	}
	same(t, "three stages", got, want)
}

func TestTwoReplicasRepeatToTheBit(t *testing.T) {
	t.Parallel()
	const steps = 8
	file := runFile(t, steps)
	run := func() map[int]json.Number {
		return start(t, "train", "--config", file, "--dir", t.TempDir(), "--json", "--local", "2", "--replicas", "2").finish(0)
	}
	same(t, "second run", run(), run())
}

// TestKillingAnyProcessKeepsTheLosses kills the nodes that TestTrainKillResume does not.
func TestKillingAnyProcessKeepsTheLosses(t *testing.T) {
	t.Parallel()
	const steps = 24
	file := runFile(t, steps)
	want := alone(t, file, steps)
	for _, victim := range []int{0, 2} {
		t.Run(fmt.Sprintf("node %d", victim), func(t *testing.T) {
			t.Parallel()
			p := start(t, "train", "--config", file, "--dir", t.TempDir(), "--json", "--local", "3", "--replicas", "1")
			pid := p.stderr.await(t, fmt.Sprintf(`-%d: pid (\d+)`, victim))
			before := p.until(8)
			kill(t, pid[1])
			killed := time.Now()
			for p.until(p.last.Step+1).Generation == before.Generation {
			}
			t.Logf("the next new step came %v after the kill", time.Since(killed).Round(time.Second/10))
			got := p.finish(0)
			if p.last.Generation < 2 {
				t.Errorf("the run ended in generation %d: nobody noticed the kill", p.last.Generation)
			}
			if len(got) != steps {
				t.Errorf("%d steps, want %d", len(got), steps)
			}
			same(t, "with a kill", got, want)
		})
	}
}

// TestADeathCostsNoStep: a node is killed long after the last checkpoint, of two replicas and of one that is cut into three
// stages: one that neither leads nor coordinates the steps, the coordinator, and the leader. The others go on from the newest step, by a
// node with the same layers in the dead one's place or by a replay of what they sent, with the losses of a run without a death. Where the
// leader is killed, an election on a busy machine may last until the others have ended the generation.
func TestADeathCostsNoStep(t *testing.T) {
	if testing.Short() {
		t.Skip("real processes take minutes")
	}
	t.Parallel()
	const steps = 20
	file := runFile(t, steps)
	run := func(more ...string) *process {
		args := []string{"train", "--config", file, "--json", "--checkpoint-every", "1000"}
		return start(t, append(args, more...)...)
	}
	want := run("--dir", t.TempDir()).finish(0)
	three := []string{"--local", "3", "--min-nodes", "3", "--replicas", "1", "--stages", "3"}
	neither := func(r role) bool { return !r.leads && !r.coordinates }
	// Alike, so that both replicas are cut in the same way.
	alike := filepath.Join(t.TempDir(), "cluster.yaml")
	if err := os.WriteFile(alike, []byte("devices: [{count: 4, matmul: 2GFLOP/s, bandwidth: 8GB/s, memory: 1GB}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	four := []string{"--cluster", alike, "--min-nodes", "4", "--replicas", "2", "--stages", "2"}
	for name, c := range map[string]struct {
		nodes int
		args  []string
		lost  func(role) bool
		late  bool // the word on who goes on may come too late
	}{
		"a replica lives":         {4, four, neither, false},
		"nobody has it":           {3, three, neither, false},
		"who coordinates is lost": {3, three, func(r role) bool { return r.coordinates }, false},
		"who leads is lost":       {3, three, func(r role) bool { return r.leads && !r.coordinates }, true},
	} {
		dir := t.TempDir()
		p := run(append(c.args, "--dir", dir)...)
		p.until(2)
		victim := nodeOf(t, dir, c.nodes, c.lost)
		if victim < 0 { // the leader coordinates the steps
			p.interrupt()
			p.finish(0)
			continue
		}
		p.until(5)
		pid := p.stderr.await(t, fmt.Sprintf(`-%d: pid (\d+)`, victim))
		kill(t, pid[1])
		killed := time.Now()
		for p.until(p.last.Step+1).Generation < 2 {
		}
		t.Logf("%s: the first step of the next plan came %v after the kill", name, time.Since(killed).Round(time.Second/10))
		same(t, name, p.finish(0), want)
		if n := bytes.Count(p.stdout.Bytes(), []byte(`"loss"`)); n != steps {
			t.Errorf("%s: %d steps were done, want each of the %d once:\n%s", name, n, steps, p.stdout.Bytes())
		}
		if !c.late && !strings.Contains(p.stderr.String(), "computes its part") {
			t.Errorf("%s: no other node went on in the dead one's place:\n%s", name, p.stderr)
		}
	}
}

// role tells what a node does for a run besides its part of the steps.
type role struct{ leads, coordinates bool }

// nodeOf returns the last local node of a role that is wanted, -1 where none has it. Each has one stage.
func nodeOf(t *testing.T, dir string, nodes int, wanted func(role) bool) int {
	t.Helper()
	type stage struct {
		Replica, Stage int
		Peer           string
	}
	for node := nodes - 1; node >= 0; node-- {
		status := start(t, "status", "--json", "--dir", nodeDir(dir, node))
		status.finish(0)
		var said struct {
			Peer, Leader string
			Plan         []stage
		}
		if err := json.Unmarshal(status.stdout.Bytes(), &said); err != nil {
			t.Fatalf("status: %v", err)
		}
		last := 0 // stage of a replica
		for _, s := range said.Plan {
			last = max(last, s.Stage)
		}
		coordinates := slices.ContainsFunc(said.Plan, func(s stage) bool { return s.Peer == said.Peer && s.Replica == 0 && s.Stage == last })
		if wanted(role{said.Leader == said.Peer, coordinates}) {
			return node
		}
	}
	return -1
}

func kill(t testing.TB, pid string) {
	t.Helper()
	var n int
	if _, err := fmt.Sscan(pid, &n); err != nil {
		t.Fatal(err)
	}
	victim, err := os.FindProcess(n)
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// TestJoinInTheMiddleLeaveAndStatus: a node joins a run without an end, is in the plan, is shown by both nodes, and leaves.
// The devices are so slow that two are better than one even where a busy machine takes 50 ms for a message.
func TestJoinInTheMiddleLeaveAndStatus(t *testing.T) {
	t.Parallel()
	const never = 100_000 // the last step
	file, dir, joined, device := runFile(t, never), t.TempDir(), t.TempDir(), deviceFile(t, "1GFLOP/s")
	p := start(t, "train", "--config", file, "--dir", dir, "--json", "--replicas", "1", "--listen", "127.0.0.1:0", "--micros", "8", "--emulate", device)
	invite := p.stderr.await(t, `pnode join (pnode1-\S+)`)
	p.until(3)

	j := start(t, "join", invite[1], "--dir", joined, "--emulate", device)
	p.past(1)
	for _, where := range []string{dir, joined} {
		status := start(t, "status", "--json", "--dir", where)
		status.finish(0)
		var said struct {
			Generation int
			Roster     []struct{ State string }
			Plan       []struct{ Stage int }
		}
		if err := json.Unmarshal(status.stdout.Bytes(), &said); err != nil {
			t.Fatalf("status: %v", err)
		}
		if said.Generation < 2 || len(said.Roster) != 2 || len(said.Plan) == 0 {
			t.Errorf("status after the second plan says %+v", said)
		}
	}
	before := p.last.Generation
	start(t, "leave", "--dir", joined).finish(0)
	start(t, "checkpoints", "verify", "--dir", joined).finish(0) // the folder is free at once
	j.finish(0)
	p.past(before)
	p.interrupt()
	p.finish(0)
}

func TestBadInputIsExplained(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "short.txt")
	if err := os.WriteFile(empty, []byte("too short"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := runFile(t, 5)
	for _, c := range []struct {
		name string
		args []string
		want string // in the message
	}{
		{"unknown preset", []string{"train", "--preset", "giant"}, "nano"},
		{"missing data", []string{"train", "--data", "/no/such/file"}, "/no/such/file"},
		{"missing data of local nodes", []string{"train", "--local", "2", "--data", "/no/such/file"}, "/no/such/file"},
		{"short data", []string{"train", "--data", empty}, "too short"},
		{"no steps", []string{"train", "--steps", "0"}, "steps"},
		{"absurd steps", []string{"train", "--steps", "99999999999"}, "steps"},
		{"bad replicas", []string{"train", "--replicas", "many"}, "auto"},
		{"unknown flag", []string{"train", "--bogus"}, "bogus"},
		{"unknown key", []string{"train", "--config", badKey(t)}, "step_s"},
		{"damaged invite", []string{"join", "pnode1-AAAA"}, "damaged"},
		{"no invite", []string{"join", "/ip4/127.0.0.1/udp/9/quic-v1/p2p/12D3KooWGzxzKZYveHXtpG6AsrUJBcWxHBFS2HsEoGTxrMLvKXtf"}, "invite"},
		{"nothing to resume", []string{"train", "--resume"}, "pnode train"},
		{"no run", []string{"status"}, "no"},
		{"bad listen", []string{"train", "--config", file, "--listen", "nowhere"}, "listen"},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := c.args
			if args[0] != "join" || len(args) < 4 {
				args = append(args, "--dir", filepath.Join(t.TempDir(), "run"))
			}
			p := start(t, args...)
			deadline := time.AfterFunc(endToEndTimeout, func() { _ = p.cmd.Process.Kill() })
			defer deadline.Stop()
			for range p.steps {
			}
			_ = p.cmd.Wait() // the code says it
			code, text := p.cmd.ProcessState.ExitCode(), p.stderr.String()
			if code <= 0 || code == 2 && strings.Contains(text, "goroutine ") {
				t.Errorf("exit code %d", code)
			}
			if strings.Contains(text, "folder: ") {
				t.Errorf("it names the folder of a run that there is not:\n%s", text)
			}
			if !strings.Contains(text, c.want) {
				t.Errorf("the message lacks %q:\n%s", c.want, text)
			}
		})
	}
}

func badKey(t testing.TB) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "run.yaml")
	if err := os.WriteFile(file, []byte("step_s: 4\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestAnEmulatedClusterGivesTheSameLosses: slow devices behind slow links compute what one
// process computes.
func TestAnEmulatedClusterGivesTheSameLosses(t *testing.T) {
	t.Parallel()
	const steps = 8
	file := runFile(t, steps)
	want := alone(t, file, steps)
	cluster := filepath.Join(t.TempDir(), "cluster.yaml")
	err := os.WriteFile(cluster, []byte(`
devices:
  - {count: 2, model: fast, matmul: 20GFLOP/s, bandwidth: 4GB/s, memory: 1GB}
  - {model: slow, matmul: 10GFLOP/s, bandwidth: 2GB/s, memory: 1GB}
link: {bandwidth: 200Mbit/s, latency: 2ms}
links: [{between: [0-1, 2], bandwidth: 50Mbit/s, latency: 20ms, jitter: 1ms, loss: 0.1%}]
`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	got := start(t, "train", "--config", file, "--dir", t.TempDir(), "--json", "--cluster", cluster, "--replicas", "1").finish(0)
	if len(got) != steps {
		t.Errorf("%d steps, want %d", len(got), steps)
	}
	same(t, "emulated", got, want)
}

// TestOffloadTrainsWhatDoesNotFitAndResumesWithoutIt: a card too small for a model keeps optimizer
// state in the memory of its node, with the losses of a larger one, and either goes on where the
// other has stopped.
func TestOffloadTrainsWhatDoesNotFitAndResumesWithoutIt(t *testing.T) {
	t.Parallel()
	const steps = 16
	file, folder := runFile(t, steps), t.TempDir()
	cluster := func(name, memory string) string {
		path := filepath.Join(folder, name)
		text := "devices: [{matmul: 40GFLOP/s, bandwidth: 8GB/s, " + memory + "}]\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	small, card, big := cluster("small", "memory: 95MB"), cluster("card", "memory: 95MB, copies: 1GB/s, host_memory: 100MB"), cluster("big", "memory: 1GB")
	if code, _, stderr := pnode(t, "plan", "--config", file, "--cluster", small, "--recompute", "none", "--context", "128", "--sum-groups", "1"); code == exitOK || !strings.Contains(stderr, "does not fit") {
		t.Errorf("without host memory: exit code %d, %s", code, stderr)
	}
	if code, out, _ := pnode(t, "plan", "--config", file, "--cluster", card, "--recompute", "none", "--context", "128", "--sum-groups", "1"); code != exitOK || !strings.Contains(out, "of optimizer state in host memory to fit") {
		t.Errorf("with host memory: exit code %d, %s", code, out)
	}
	want := start(t, "train", "--config", file, "--context", "128", "--sum-groups", "1", "--dir", t.TempDir(), "--json").finish(0)
	for _, order := range [][2]string{{card, big}, {big, card}} {
		dir := t.TempDir()
		p := start(t, "train", "--config", file, "--dir", dir, "--json", "--cluster", order[0], "--recompute", "none", "--context", "128", "--sum-groups", "1")
		p.until(7)
		p.interrupt()
		got := p.finish(0)
		for s, loss := range start(t, "train", "--resume", "--dir", dir, "--json", "--cluster", order[1]).finish(0) {
			got[s] = loss
		}
		same(t, "interrupted and resumed", got, want)
	}
}

// TestWhatPrecisionCostsIsTold: two processes in bf16 tell what the held-out loss is in float32, as
// their steps are told and at the end; one in float32 says nothing of it.
func TestWhatPrecisionCostsIsTold(t *testing.T) {
	t.Parallel()
	const steps = 6 // evaluated at the fifth, and behind the last
	file := runFile(t, steps)
	for storage, want := range map[string]int{"bf16": 2, "f32": 0} {
		p := start(t, "train", "--config", file, "--dir", t.TempDir(), "--json", "--local", "2", "--replicas", "1", "--stages", "2", "--storage", storage)
		told := 0
		for range steps {
			s := p.until(p.last.Step + 1)
			if s.HeldOutF32 == nil {
				continue
			}
			told++
			loss, errLoss := s.HeldOut.Float64()
			f32, errF32 := s.HeldOutF32.Float64()
			if errLoss != nil || errF32 != nil || loss == f32 || math.Abs(loss-f32) > 5e-3*f32 {
				t.Errorf("held-out loss of step %d is %s, in float32 %s", s.Step, s.HeldOut, s.HeldOutF32)
			}
		}
		p.finish(0)
		if told != want {
			t.Errorf("%s: %d steps tell a held-out loss in float32, want %d", storage, told, want)
		}
		const number = `[0-9]\.[0-9]+`
		lines := regexp.MustCompile(`(?m)^  held-out in float32 throughout: `+number+`, lower precision costs [-+][-+.e0-9]+$|`+
			`held-out loss `+number+` nats a token \(float32 throughout: `+number+`, lower precision costs [-+][-+.e0-9]+\), `).FindAllString(p.stderr.String(), -1)
		if len(lines) != want || storage == "f32" && strings.Contains(p.stderr.String(), "float32 throughout") {
			t.Errorf("%s tells %q in\n%s", storage, lines, p.stderr)
		}
	}
}

// TestAClusterOfUnlikePrecisionRepeatsToTheBit: one device with matrix units, one without; the
// losses are beside those of float32, and the same ones again.
func TestAClusterOfUnlikePrecisionRepeatsToTheBit(t *testing.T) {
	t.Parallel()
	const steps = 8
	file := runFile(t, steps)
	floats := alone(t, file, steps)
	cluster := filepath.Join(t.TempDir(), "cluster.yaml")
	err := os.WriteFile(cluster, []byte(`
devices:
  - {matmul: 2GFLOP/s, bandwidth: 2GB/s, memory: 1GB}
  - {matmul: 2GFLOP/s, matmul_bf16: 6GFLOP/s, bandwidth: 2GB/s, memory: 1GB}
link: {bandwidth: 100Mbit/s, latency: 1ms} # a measured one may give another cut, and so other bits
`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	train := func() map[int]json.Number {
		p := start(t, "train", "--config", file, "--dir", t.TempDir(), "--json", "--cluster", cluster, "--replicas", "1", "--stages", "2", "--schedule", "1f1b", "--storage", "auto")
		losses := p.finish(0)
		if p.last.HeldOutF32 == nil {
			t.Errorf("the last step does not tell the held-out loss in float32:\n%s", p.stderr)
		}
		return losses
	}
	want := train()
	same(t, "again", train(), want)
	other := false
	for step, loss := range floats {
		a, errA := loss.Float64()
		b, errB := want[step].Float64()
		if errA != nil || errB != nil || math.Abs(a-b) > 5e-3*a {
			t.Errorf("loss of step %d is %s, in float32 %s", step, want[step], loss)
		}
		other = other || a != b
	}
	if !other {
		t.Error("bf16 changes nothing")
	}
}

// TestLeavingRedoesNothing: nodes of a run leave one after the other, at a signal of the system, by command and at the notice of a
// cloud. Each is out in time with exit code 0, no step is done twice, and the losses are those of one process.
func TestLeavingRedoesNothing(t *testing.T) {
	t.Parallel()
	const steps = 60
	file, device := runFile(t, steps), deviceFile(t, "1GFLOP/s")
	want := alone(t, file, steps)
	taken := make(chan struct{})
	cloud := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-taken:
		default:
			if r.Method == http.MethodGet {
				w.WriteHeader(http.StatusNotFound)
			} else {
				fmt.Fprint(w, "token")
			}
			return
		}
		fmt.Fprintf(w, `{"action": "terminate", "time": %q}`, time.Now().Add(2*time.Minute).UTC().Format(time.RFC3339))
	}))
	defer cloud.Close()
	dir, left := t.TempDir(), t.TempDir()
	p := start(t, "train", "--config", file, "--dir", dir, "--json", "--voters", "any", "--min-nodes", "4", "--replicas", "1", "--stages", "4", "--checkpoint-every", "5", "--listen", "127.0.0.1:0", "--emulate", device)
	invite := p.stderr.await(t, `pnode join (pnode1-\S+)`)
	var members []*process
	for _, args := range [][]string{{"--dir", t.TempDir(), "--grace", "5m"}, {"--dir", left}, {"--dir", t.TempDir(), "--notices", "aws=" + cloud.URL}} {
		members = append(members, start(t, append([]string{"join", invite[1], "--emulate", device}, args...)...))
	}
	for i, leave := range []func(){
		func() {
			if err := members[0].cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		},
		func() { start(t, "leave", "--dir", left).finish(0) },
		func() { close(taken) },
	} {
		before := p.until(p.last.Step + 8).Generation
		leave()
		members[i].finish(0)
		if text := members[i].stderr.String(); !strings.Contains(text, "drain: leaving") || !strings.Contains(text, "goes on without this node") {
			t.Errorf("node %d leaves without a word of what it hands over:\n%s", i, text)
		}
		for p.until(p.last.Step+1).Generation <= before {
			if p.last.Step >= steps-1 {
				t.Fatalf("node %d is still in the plan", i)
			}
		}
	}
	same(t, "when nodes leave", p.finish(0), want)
	if p.repeated > 0 {
		t.Errorf("%d steps were done again", p.repeated)
	}
}

// TestLeavingTooLate: where the time is too short for what a node has, it goes in time, says so by its exit code, and the others
// go on with the same losses. They do no step again, though the messages that it kept went with it.
func TestLeavingTooLate(t *testing.T) {
	t.Parallel()
	const steps = 30
	file := runFile(t, steps)
	want := alone(t, file, steps)
	line := filepath.Join(t.TempDir(), "line.yaml")
	if err := os.WriteFile(line, []byte("device: {model: far, matmul: 10GFLOP/s, bandwidth: 10GB/s, memory: 2GB}\nlink: {bandwidth: 8Mbit/s, latency: 5ms}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, "train", "--config", file, "--dir", t.TempDir(), "--json", "--voters", "any", "--min-nodes", "3", "--replicas", "1", "--stages", "3", "--listen", "127.0.0.1:0", "--emulate", line)
	invite := p.stderr.await(t, `pnode join (pnode1-\S+)`)
	stays := start(t, "join", invite[1], "--dir", t.TempDir(), "--emulate", line)
	leaves := start(t, "join", invite[1], "--dir", t.TempDir(), "--emulate", line, "--grace", "2s")
	before := p.until(6).Generation
	if err := leaves.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	leaves.finish(exitNotHanded)
	if text := leaves.stderr.String(); !strings.Contains(text, "left without handing over (SIGTERM)") {
		t.Errorf("it does not say that time was too short:\n%s", text)
	}
	for p.until(p.last.Step+1).Generation <= before {
	}
	same(t, "when a node leaves too late", p.finish(0), want)
	if p.repeated > 0 {
		t.Errorf("%d steps were done again: what the others had sent to the node is enough to compute its state", p.repeated)
	}
	stays.finish(0)
}
