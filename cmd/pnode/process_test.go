package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"pnode/kernels/devices"
	"pnode/node/config"
)

// endToEndTimeout ends a run that hangs; it is far above what a busy machine needs.
const endToEndTimeout = 6 * time.Minute

// endToEndParallel is how many tests of real processes run at the same time where -parallel says
// nothing else: they wait for each other's elections and heartbeats for most of their time.
const endToEndParallel = 6

// buildOnce builds the binary into a folder that TestMain removes. Compilers and drivers know
// their caches by outerEnv, which other processes get.
var (
	outerEnv  = slices.Clip(os.Environ())
	binaryDir string
	buildOnce = sync.OnceValues(func() (string, error) {
		binary := filepath.Join(binaryDir, "bin", "pnode")
		if runtime.GOOS == "windows" {
			binary += ".exe"
		}
		return binary, build(outerEnv, binary)
	})
)

// build makes this folder's program.
func build(env []string, file string, args ...string) error {
	cmd := exec.Command("go", append(append([]string{"build", "-ldflags", "-s -w", "-o", file}, args...), ".")...)
	cmd.Env = env
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

func TestMain(m *testing.M) {
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// runTests keeps the user's own data away from the commands that the tests carry out within this
// process, and wants no file in the folder that stands for it: it would change other tests.
func runTests(m *testing.M) (code int, err error) {
	if binaryDir, err = os.MkdirTemp("", "pnode-e2e-"); err != nil {
		return 0, err
	}
	defer os.RemoveAll(binaryDir)
	for _, variable := range []string{"XDG_DATA_HOME", "HOME", "LocalAppData"} {
		if err := os.Setenv(variable, binaryDir); err != nil {
			return 0, err
		}
	}
	// The register of nodes is for commands in this process and for nodes in others, and not the user's own.
	if err := os.Setenv("XDG_STATE_HOME", filepath.Join(binaryDir, "state")); err != nil {
		return 0, err
	}
	if err := flag.Set("test.parallel", strconv.Itoa(endToEndParallel)); err != nil {
		return 0, err
	}
	data, err := config.DefaultDir()
	if err != nil {
		return 0, err
	}
	code = m.Run()
	return code, noFiles(data)
}

// noFiles refuses a folder with files in it, or in folders of it.
func noFiles(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err == nil && !entry.IsDir():
			return fmt.Errorf("a test left %s in the user's folder: give its commands a --dir", path)
		}
		return err
	})
}

// step is a line of --json.
type step struct {
	Step       int          `json:"step"`
	Loss       json.Number  `json:"loss"`
	HeldOut    *json.Number `json:"held_out"`
	HeldOutF32 *json.Number `json:"held_out_f32"`
	TokensPerS float64      `json:"tokens_per_s"`
	Generation int          `json:"generation"`
}

// process is a running pnode. Its standard error is kept, its steps are collected.
type process struct {
	t      testing.TB
	cmd    *exec.Cmd
	stdout bytes.Buffer // complete once steps is closed
	stderr *watched
	steps  chan step
	losses map[int]json.Number
	last   step
	// repeated counts the steps that were done again.
	repeated int
	// tolerance is how much the loss of a step that is repeated may differ, in nats.
	tolerance float64
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

// start is launch for tests that the quick suite leaves out.
func start(t testing.TB, args ...string) *process {
	t.Helper()
	if testing.Short() {
		t.Skip("real processes take minutes")
	}
	return launch(t, args...)
}

// launch runs pnode with its data in a folder of the test.
func launch(t testing.TB, args ...string) *process {
	t.Helper()
	binary, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	return launchBinary(t, binary, nil, args...)
}

// launchBinary is launch for another program, with more variables in its environment.
func launchBinary(t testing.TB, binary string, env []string, args ...string) *process {
	t.Helper()
	return launchBy(t, (*exec.Cmd).Start, binary, env, args...)
}

// launchBy is launchBinary with what starts a command, such as another machine.
func launchBy(t testing.TB, begin func(*exec.Cmd) error, binary string, env []string, args ...string) *process {
	t.Helper()
	p := &process{
		t: t, cmd: exec.Command(binary, args...), stderr: &watched{fresh: make(chan struct{}, 1)},
		steps: make(chan step, 1<<16), losses: map[int]json.Number{},
	}
	p.cmd.Stderr = p.stderr
	p.cmd.Env = append(append(outerEnv, env...), devices.NamesEnv+"=cpu", "XDG_STATE_HOME="+os.Getenv("XDG_STATE_HOME")) // losses are compared to the bit
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := begin(p.cmd); err != nil {
		t.Fatal(err)
	}
	go p.read(stdout)
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	return p
}

func (p *process) read(stdout io.Reader) {
	defer close(p.steps)
	lines := bufio.NewScanner(io.TeeReader(stdout, &p.stdout))
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

// past takes steps in until one is of a later generation, and gives it.
func (p *process) past(generation int) step {
	p.t.Helper()
	for deadline := time.Now().Add(endToEndTimeout); p.until(p.last.Step+1).Generation <= generation; {
		if time.Now().After(deadline) {
			p.t.Fatalf("no plan after generation %d within %v, at step %d:\n%s", generation, endToEndTimeout, p.last.Step, p.stderr)
		}
	}
	return p.last
}

// note keeps a loss; a step that is repeated after a failure must have the same one, or on other
// devices a near one.
func (p *process) note(s step) {
	if old, ok := p.losses[s.Step]; ok && old != s.Loss && !within(old, s.Loss, p.tolerance) {
		p.t.Errorf("step %d had loss %s, repeated in generation %d it has %s", s.Step, old, s.Generation, s.Loss)
	}
	if _, again := p.losses[s.Step]; again {
		p.repeated++
	}
	p.losses[s.Step], p.last = s.Loss, s
}

// interrupt asks the process to stop, as Ctrl-C does.
func (p *process) interrupt() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		p.t.Fatal(err)
	}
}

// kill ends the process at once, and takes in what it had told.
func (p *process) kill() {
	p.t.Helper()
	kill(p.t, strconv.Itoa(p.cmd.Process.Pid))
	for s := range p.steps {
		p.note(s)
	}
	_ = p.cmd.Wait() // it was killed
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

// runFile writes a run.yaml of a run that takes seconds, and the text it trains on. It is in f32, whose losses tests compare: by
// itself a run would be in bf16 where this processor has instructions for it, and not on a device that is emulated.
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
	yaml := fmt.Sprintf("data: [%q]\nsteps: %d\ncontext: 32\nmicros: 4\nmicro_batch: 1\nheld_out_every: 5\ncheckpoint_every: 5\nsample_bytes: 20\nstorage: f32\n", data, steps)
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// deviceFile describes a device for --emulate, with plenty of memory: its speed does not depend on
// what else this machine does while it is measured.
func deviceFile(t testing.TB, matmul string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "device.yaml")
	yaml := fmt.Sprintf("device: {matmul: %s, bandwidth: 8GB/s, memory: 2GB}\n", matmul)
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
