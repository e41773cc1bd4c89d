package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// These tests run real processes of the real binary on loopback: what a user does, and
// what happens to a user. They compare losses as text, which holds every bit.

// endToEndTimeout ends a run that hangs; it is far above what a busy machine needs.
const endToEndTimeout = 6 * time.Minute

// buildOnce builds the binary into a folder that TestMain removes.
var (
	binaryDir string
	buildOnce = sync.OnceValues(func() (string, error) {
		binary := filepath.Join(binaryDir, "pnode")
		if runtime.GOOS == "windows" {
			binary += ".exe"
		}
		out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("%w\n%s", err, out)
		}
		return binary, nil
	})
)

func TestMain(m *testing.M) {
	var err error
	if binaryDir, err = os.MkdirTemp("", "pnode-e2e-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(binaryDir)
	os.Exit(code)
}

// step is a line of --json.
type step struct {
	Step       int          `json:"step"`
	Loss       json.Number  `json:"loss"`
	HeldOut    *json.Number `json:"heldout"`
	TokensPerS float64      `json:"tokens_per_s"`
	Generation int          `json:"generation"`
}

// process is a running pnode. Its standard error is kept, its steps are collected.
type process struct {
	t      testing.TB
	cmd    *exec.Cmd
	stderr *watched
	steps  chan step
	losses map[int]json.Number
	last   step
}

// watched keeps what a process writes and wakes whoever waits for some of it.
type watched struct {
	mu    sync.Mutex // guards text
	text  bytes.Buffer
	fresh chan struct{}
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case w.fresh <- struct{}{}:
	default:
	}
	return w.text.Write(p)
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// await waits until the text matches and gives the submatches.
func (w *watched) await(t testing.TB, pattern string) []string {
	t.Helper()
	re := regexp.MustCompile(pattern)
	deadline := time.After(endToEndTimeout)
	for {
		if m := re.FindStringSubmatch(w.String()); m != nil {
			return m
		}
		select {
		case <-w.fresh:
		case <-deadline:
			t.Fatalf("no %q within %v in:\n%s", pattern, endToEndTimeout, w)
		}
	}
}

// start runs pnode with its data in a folder of the test.
func start(t testing.TB, args ...string) *process {
	t.Helper()
	if testing.Short() {
		t.Skip("real processes take minutes")
	}
	binary, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{
		t: t, cmd: exec.Command(binary, args...), stderr: &watched{fresh: make(chan struct{}, 1)},
		steps: make(chan step, 1<<16), losses: map[int]json.Number{},
	}
	p.cmd.Stderr = p.stderr
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go p.read(stdout)
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	return p
}

func (p *process) read(stdout io.Reader) {
	defer close(p.steps)
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var s step
		if json.Unmarshal(lines.Bytes(), &s) == nil && s.Step > 0 {
			p.steps <- s
		}
	}
}

// until takes steps in until one is at least n, and gives it.
func (p *process) until(n int) step {
	p.t.Helper()
	deadline := time.After(endToEndTimeout)
	for {
		select {
		case s, ok := <-p.steps:
			if !ok {
				p.t.Fatalf("the run ended after step %d, before %d:\n%s", p.last.Step, n, p.stderr)
			}
			p.note(s)
			if s.Step >= n {
				return s
			}
		case <-deadline:
			p.t.Fatalf("no step %d within %v, the last was %d:\n%s", n, endToEndTimeout, p.last.Step, p.stderr)
		}
	}
}

// note keeps a loss; a step that is repeated after a failure must have the same one.
func (p *process) note(s step) {
	if old, ok := p.losses[s.Step]; ok && old != s.Loss {
		p.t.Errorf("step %d had loss %s, repeated in generation %d it has %s", s.Step, old, s.Generation, s.Loss)
	}
	p.losses[s.Step], p.last = s.Loss, s
}

// finish waits for the end, wants the exit code, and gives the losses by step.
func (p *process) finish(code int) map[int]json.Number {
	p.t.Helper()
	deadline := time.AfterFunc(endToEndTimeout, func() { _ = p.cmd.Process.Kill() })
	defer deadline.Stop()
	for s := range p.steps {
		p.note(s)
	}
	_ = p.cmd.Wait() // the code says it
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		p.t.Fatalf("exit code %d, want %d:\n%s", got, code, p.stderr)
	}
	return p.losses
}

// runFile writes a run.yaml of a run that takes seconds, and the text it trains on.
func runFile(t testing.TB, steps int) string {
	t.Helper()
	dir := t.TempDir()
	var text strings.Builder
	for i := range 4000 {
		fmt.Fprintf(&text, "line %d of the text has %d words and the sum %d\n", i, i%17, i*i%1009)
	}
	data := filepath.Join(dir, "text.txt")
	if err := os.WriteFile(data, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "run.yaml")
	yaml := fmt.Sprintf("data: [%q]\nsteps: %d\nmicros: 4\nmicro_batch: 1\nheld_out_every: 5\ncheckpoint_every: 5\nsample_bytes: 20\n", data, steps)
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func same(t testing.TB, name string, got, want map[int]json.Number) {
	t.Helper()
	for s, loss := range want {
		if got[s] != loss {
			t.Errorf("%s: step %d has loss %q, want %q", name, s, got[s], loss)
		}
	}
}

// alone is the reference: one process, uninterrupted.
func alone(t testing.TB, file string, steps int) map[int]json.Number {
	t.Helper()
	losses := start(t, "train", "--config", file, "--dir", t.TempDir(), "--json").finish(0)
	if len(losses) != steps {
		t.Fatalf("%d steps, want %d", len(losses), steps)
	}
	return losses
}

func TestInterruptAndResumeGiveTheSameLosses(t *testing.T) {
	const steps = 24
	file, dir := runFile(t, steps), t.TempDir()
	want := alone(t, file, steps)

	p := start(t, "train", "--config", file, "--dir", dir, "--json")
	p.until(7)
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	first := p.finish(0)
	if len(first) >= steps {
		t.Fatal("the run was over before the interrupt")
	}
	if out := start(t, "checkpoints", "verify", "--dir", dir); out.cmd != nil {
		out.finish(0)
	}
	rest := start(t, "train", "--resume", "--dir", dir, "--json").finish(0)
	if _, repeated := rest[len(first)]; repeated {
		t.Errorf("step %d was done again: the interrupt lost it", len(first))
	}
	for s, loss := range first {
		rest[s] = loss
	}
	same(t, "interrupted and resumed", rest, want)
}

func TestThreeProcessesGiveTheLossesOfOne(t *testing.T) {
	const steps = 12
	file := runFile(t, steps)
	want := alone(t, file, steps)
	p := start(t, "train", "--config", file, "--dir", t.TempDir(), "--json", "--local", "3", "--replicas", "1", "--stages", "3")
	got := p.finish(0)
	if len(got) != steps {
		t.Errorf("%d steps, want %d", len(got), steps)
	}
	same(t, "three stages", got, want)
}

func TestTwoReplicasRepeatToTheBit(t *testing.T) {
	const steps = 10
	file := runFile(t, steps)
	run := func() map[int]json.Number {
		return start(t, "train", "--config", file, "--dir", t.TempDir(), "--json", "--local", "2", "--replicas", "2").finish(0)
	}
	same(t, "second run", run(), run())
}

func TestKillingAnyProcessKeepsTheLosses(t *testing.T) {
	const steps = 40
	file := runFile(t, steps)
	want := alone(t, file, steps)
	for victim := range 3 {
		t.Run(fmt.Sprintf("node %d", victim), func(t *testing.T) {
			p := start(t, "train", "--config", file, "--dir", t.TempDir(), "--json", "--local", "3", "--replicas", "1")
			pid := p.stderr.await(t, fmt.Sprintf(`node %d: pid (\d+)`, victim))
			p.until(8)
			kill(t, pid[1])
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

func TestJoinInTheMiddleLeaveAndStatus(t *testing.T) {
	const steps = 400
	file, dir, joined := runFile(t, steps), t.TempDir(), t.TempDir()
	p := start(t, "train", "--config", file, "--dir", dir, "--json", "--replicas", "1", "--listen", "127.0.0.1:0")
	invite := p.stderr.await(t, `pnode join (pnode1-\S+)`)
	p.until(6)

	j := start(t, "join", invite[1], "--dir", joined)
	for p.until(p.last.Step+1).Generation < 2 {
		if p.last.Step > steps-50 {
			t.Fatalf("the joined node was never used:\n%s", j.stderr)
		}
	}
	for _, where := range []string{dir, joined} {
		status := start(t, "status", "--json", "--dir", where)
		out := status.finish(0)
		_ = out
	}
	leave := start(t, "leave", "--dir", joined)
	leave.finish(0)
	j.finish(0)
	for p.until(p.last.Step+1).Generation < 3 {
		if p.last.Step > steps-5 {
			t.Fatal("the run never went on without the node that left")
		}
	}
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	p.finish(0)
}

func TestBadInputIsExplained(t *testing.T) {
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
