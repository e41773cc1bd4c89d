package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"pnode/node/api"
	"pnode/node/config"
	"pnode/planner"
)

// record keeps what is shown and wakes whoever waits for some of it.
type record struct {
	mu      sync.Mutex // guards what follows
	events  []api.Event
	notices []string
	change  chan struct{} // closed and replaced at each change
}

func newRecord() *record { return &record{change: make(chan struct{})} }

func (r *record) changed() {
	close(r.change)
	r.change = make(chan struct{})
}

func (r *record) Event(e api.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
	r.changed()
}

func (r *record) Notice(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notices = append(r.notices, text)
	r.changed()
}

// await waits until the condition holds; the test's own timeout ends a wait in vain.
func (r *record) await(condition func(*record) bool) {
	for {
		r.mu.Lock()
		met, change := condition(r), r.change
		r.mu.Unlock()
		if met {
			return
		}
		<-change
	}
}

// stepsOf are the steps shown of a generation, sorted.
func (r *record) stepsOf(g planner.Generation) []int {
	var steps []int
	for _, e := range r.events {
		if e.Kind == api.KindStep && e.Generation == g {
			steps = append(steps, int(e.Step))
		}
	}
	slices.Sort(steps)
	return steps
}

func (r *record) count(kind api.Kind) (n int) {
	for _, e := range r.events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// said gives the submatches of the first notice that matches.
func (r *record) said(pattern string) []string {
	re := regexp.MustCompile(pattern)
	for _, n := range r.notices {
		if m := re.FindStringSubmatch(n); m != nil {
			return m
		}
	}
	return nil
}

// heard counts the notices that match.
func (r *record) heard(pattern string) (n int) {
	re := regexp.MustCompile(pattern)
	for _, notice := range r.notices {
		if re.MatchString(notice) {
			n++
		}
	}
	return n
}

// supervise makes a supervisor of fakes.
func supervise(t *testing.T, script string, nodes int, change func(*Options)) (*Supervisor, *record) {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out := newRecord()
	o := Options{
		Nodes: nodes, Dir: t.TempDir(), Config: config.Default(), Binary: binary,
		Env: []string{scriptVariable + "=" + script, nodesVariable + "=" + strconv.Itoa(nodes)}, Output: out,
	}
	if change != nil {
		change(&o)
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	return s, out
}

func numbers(from, to int) []int {
	var n []int
	for i := from; i <= to; i++ {
		n = append(n, i)
	}
	return n
}

func TestMergesTheNodesOfARun(t *testing.T) {
	s, out := supervise(t, "short", 3, nil)
	if err := s.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := out.stepsOf(1); !reflect.DeepEqual(got, numbers(1, 30)) {
		t.Errorf("steps %v, want each of 1 to 30 once", got)
	}
	for _, e := range out.events {
		if e.Kind == api.KindStep && e.Loss != 1/float64(e.Step) {
			t.Errorf("step %d has loss %v", e.Step, e.Loss)
		}
	}
	if out.count(api.KindSample) != 1 || out.count(api.KindDone) != 1 {
		t.Errorf("%d samples, %d ends", out.count(api.KindSample), out.count(api.KindDone))
	}
	for i := range 3 {
		if out.said(fmt.Sprintf(`^node %d: pid \d+$`, i)) == nil || out.said(fmt.Sprintf(`^node %d: state: training$`, i)) == nil {
			t.Errorf("nothing of node %d in %q", i, out.notices)
		}
	}
}

// args are what a node was started with.
func args(t *testing.T, dir string) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "args.json"))
	if err != nil {
		t.Fatal(err)
	}
	var a []string
	if err := json.Unmarshal(b, &a); err != nil {
		t.Fatal(err)
	}
	return a
}

func TestCommandLinesAndRunFile(t *testing.T) {
	s, _ := supervise(t, "short", 2, func(o *Options) {
		o.Config.Steps, o.Config.Local, o.Config.JSON, o.Config.Dir, o.Config.Threads = 77, 2, true, "/elsewhere", 5
	})
	if err := s.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	dir := s.options.Dir
	want := []string{"train", "--supervised", "--dir", filepath.Join(dir, "node-0"), "--config", filepath.Join(dir, "run.yaml")}
	if got := args(t, s.nodeDir(0)); !reflect.DeepEqual(got, want) {
		t.Errorf("node 0: %q, want %q", got, want)
	}
	want = []string{"join", fakeInvite, "--supervised", "--dir", filepath.Join(dir, "node-1"), "--listen", "127.0.0.1:0", "--threads", "5", "--log-level", "info"}
	if got := args(t, s.nodeDir(1)); !reflect.DeepEqual(got, want) {
		t.Errorf("node 1: %q, want %q", got, want)
	}
	c, err := config.Load(filepath.Join(dir, "run.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	wantConfig := config.Default()
	wantConfig.Steps, wantConfig.MinNodes, wantConfig.Listen, wantConfig.Threads, wantConfig.LogLevel = 77, 2, "127.0.0.1:0", 5, "info"
	if !reflect.DeepEqual(c, wantConfig) {
		t.Errorf("run.yaml:\n got %+v\nwant %+v", c, wantConfig)
	}
	if got := config.NodeDirs(dir); !reflect.DeepEqual(got, []string{s.nodeDir(0), s.nodeDir(1)}) {
		t.Errorf("node folders %q", got)
	}
}

func TestResumeStartsTheNodesFromTheirFolders(t *testing.T) {
	s, _ := supervise(t, "short", 2, nil)
	if err := s.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	dir := s.options.Dir
	again, _ := supervise(t, "short", 2, func(o *Options) { o.Dir = dir })
	if err := again.Run(t.Context()); !errors.Is(err, config.ErrDirTaken) || !strings.Contains(err.Error(), "--resume") {
		t.Errorf("a second start in the folder: %v", err)
	}
	resumed, out := supervise(t, "short", 3, func(o *Options) { o.Dir, o.Config.Resume = dir, true })
	if err := resumed.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{"train", "--supervised", "--dir", resumed.nodeDir(0), "--resume", "--threads", strconv.Itoa(s.threads()), "--log-level", "info"}
	if a := args(t, resumed.nodeDir(0)); !reflect.DeepEqual(a, want) {
		t.Errorf("node 0: %q, want %q", a, want)
	}
	if a := args(t, resumed.nodeDir(1)); a[1] != "--supervised" {
		t.Errorf("node 1 has an invite: %q", a)
	}
	if a := args(t, resumed.nodeDir(2)); a[1] != fakeInvite {
		t.Errorf("the new node 2 has no invite: %q", a)
	}
	if got := out.stepsOf(1); !reflect.DeepEqual(got, numbers(1, 30)) {
		t.Errorf("steps %v", got)
	}
	// A node that was not admitted before it died needs an invite.
	for _, file := range []string{config.MembershipFile, "args.json"} {
		if err := os.Remove(filepath.Join(resumed.nodeDir(1), file)); err != nil {
			t.Fatal(err)
		}
	}
	third, _ := supervise(t, "short", 2, func(o *Options) { o.Dir, o.Config.Resume = dir, true })
	if err := third.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a := args(t, third.nodeDir(1)); a[1] != fakeInvite {
		t.Errorf("node 1 without a membership has no invite: %q", a)
	}
	empty, _ := supervise(t, "short", 2, func(o *Options) { o.Config.Resume = true })
	if err := empty.Run(t.Context()); !errors.Is(err, config.ErrNoRun) {
		t.Errorf("nothing to resume: %v", err)
	}
}

func TestGoesOnWhenANodeIsKilled(t *testing.T) {
	s, out := supervise(t, "kill", 3, nil)
	over := make(chan error, 1)
	go func() { over <- s.Run(t.Context()) }()
	var said []string
	out.await(func(r *record) bool {
		said = r.said(`^node 1: pid (\d+)$`)
		return len(r.stepsOf(1)) == 6 && said != nil
	})
	pid, err := strconv.Atoi(said[1])
	if err != nil {
		t.Fatal(err)
	}
	victim, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Kill(); err != nil {
		t.Fatal(err)
	}
	out.await(func(r *record) bool {
		return r.said(`^node 1 ended without a word \(signal: killed\); its log is .*log.txt$`) != nil
	})
	if err := os.WriteFile(filepath.Join(s.options.Dir, "killed"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-over; err != nil {
		t.Fatal(err)
	}
	if got := out.stepsOf(1); !reflect.DeepEqual(got, numbers(1, 6)) {
		t.Errorf("generation 1: steps %v", got)
	}
	if got := out.stepsOf(2); !reflect.DeepEqual(got, numbers(4, 10)) {
		t.Errorf("generation 2: steps %v", got)
	}
	if out.count(api.KindPlan) != 1 || out.count(api.KindDone) != 1 {
		t.Errorf("%d plans, %d ends", out.count(api.KindPlan), out.count(api.KindDone))
	}
}

func TestInterruptStopsTheRun(t *testing.T) {
	for _, script := range []string{"stoppable", "deaf"} { // by the API, and by closing standard input
		t.Run(script, func(t *testing.T) {
			s, out := supervise(t, script, 2, nil)
			ctx, cancel := context.WithCancel(t.Context())
			over := make(chan error, 1)
			go func() { over <- s.Run(ctx) }()
			out.await(func(r *record) bool { return len(r.stepsOf(1)) == 3 && r.said(`^node 1: state`) != nil })
			cancel()
			if err := <-over; err != nil {
				t.Error(err)
			}
			if died := out.said("ended"); died != nil {
				t.Errorf("%q", out.notices)
			}
		})
	}
}

// TestInterruptOfAMinority: no node can take the request, and none ends by itself.
func TestInterruptOfAMinority(t *testing.T) {
	for script, want := range map[string]error{"minority": nil, "stuck": ErrForced} {
		t.Run(script, func(t *testing.T) {
			s, out := supervise(t, script, 2, nil)
			s.graces.ask = 50 * time.Millisecond
			if script == "stuck" {
				s.graces.hangUp = 50 * time.Millisecond
			}
			ctx, cancel := context.WithCancel(t.Context())
			over := make(chan error, 1)
			go func() { over <- s.Run(ctx) }()
			out.await(func(r *record) bool { return len(r.stepsOf(1)) == 3 && r.said(`^node 1: state`) != nil })
			cancel()
			if err := <-over; !errors.Is(err, want) || (err != nil) != (want != nil) {
				t.Errorf("got %v, want %v", err, want)
			}
		})
	}
}

func TestInterruptWhileStarting(t *testing.T) {
	s, _ := supervise(t, "deaf", 3, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Run(ctx); err != nil {
		t.Error(err)
	}
}

func TestKillEndsEverything(t *testing.T) {
	s, out := supervise(t, "stuck", 2, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	over := make(chan error, 1)
	go func() { over <- s.Run(ctx) }()
	out.await(func(r *record) bool { return len(r.stepsOf(1)) == 3 && r.said(`^node 1: state`) != nil })
	s.Kill()
	err := <-over
	if !errors.Is(err, ErrNotFinished) {
		t.Fatalf("got %v", err)
	}
	for i := range 2 { // as a notice or in the error
		text := fmt.Sprintf("node %d ended without a word", i)
		if n := out.heard(text) + strings.Count(err.Error(), text); n != 1 {
			t.Errorf("%s: told %d times: %q and %v", text, n, out.notices, err)
		}
	}
}

func TestNodeThatCannotStartEndsTheRun(t *testing.T) {
	s, out := supervise(t, "broken", 3, nil)
	err := s.Run(t.Context())
	want := "node 1: the disk is full (its log is " + filepath.Join(s.nodeDir(1), logFile) + ")"
	if !errors.Is(err, ErrNotFinished) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if said := out.said("disk"); said != nil {
		t.Errorf("told twice: %q", out.notices)
	}
	if e := (&NodeError{}); !errors.As(err, &e) || e.Node != 1 || e.Code != 1 {
		t.Errorf("got %+v", e)
	}
}

// TestWhatAllNodesSayIsSaidOnce: the run goes on nowhere, and all of them know why.
func TestWhatAllNodesSayIsSaidOnce(t *testing.T) {
	first, _ := supervise(t, "short", 2, nil)
	if err := first.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for script, want := range map[string]string{"refused": "the disk is full", "finished": "the run is finished"} {
		s, out := supervise(t, script, 2, func(o *Options) { o.Dir, o.Config.Resume = first.options.Dir, true })
		if err := s.Run(t.Context()); !errors.Is(err, ErrNotFinished) || err.Error() != want {
			t.Errorf("%s: got %v", script, err)
		}
		if said := out.said(want + "|majority"); said != nil {
			t.Errorf("%s: told twice: %q", script, out.notices)
		}
	}
}

// TestALostNodeIsToldOnce: the others go on, so that it is a notice and no error.
func TestALostNodeIsToldOnce(t *testing.T) {
	s, out := supervise(t, "loser", 2, nil)
	over := make(chan error, 1)
	go func() { over <- s.Run(t.Context()) }()
	out.await(func(r *record) bool { return r.said("^node 1: the disk is full") != nil })
	if err := os.WriteFile(filepath.Join(s.options.Dir, "told"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-over; err != nil {
		t.Error(err)
	}
	if n := out.heard("disk"); n != 1 {
		t.Errorf("told %d times: %q", n, out.notices)
	}
}

func TestTellsOnceWhyNothingMoves(t *testing.T) {
	s, out := supervise(t, "asleep", 2, nil)
	s.patience = 20 * time.Millisecond
	if err := s.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := out.heard("^waiting: no planner: 1 of 3 voters is up$"); n != 1 {
		t.Errorf("told %d times: %q", n, out.notices)
	}
}

// TestAnErrorOfSeveralNodesIsShownOnce: they lost the same peer.
func TestAnErrorOfSeveralNodesIsShownOnce(t *testing.T) {
	out := newRecord()
	m := newMerge(out, func() {})
	for node := range 3 {
		m.event(node, api.Event{Kind: api.KindError, Generation: 2, Message: "waiting for a new plan"})
	}
	m.event(1, api.Event{Kind: api.KindError, Generation: 2, Message: "something else"})
	if want := []string{"node 0: error: waiting for a new plan", "node 1: error: something else"}; !reflect.DeepEqual(out.notices, want) {
		t.Errorf("got %q, want %q", out.notices, want)
	}
}

func TestLongLastWordsAreClipped(t *testing.T) {
	if got := clip(strings.Repeat("é", maxSentence)); len(got) > maxSentence+3 || !utf8.ValidString(got) || !strings.HasSuffix(got, "é...") {
		t.Errorf("%d bytes: %q", len(got), got[len(got)-8:])
	}
}

func TestStartErrors(t *testing.T) {
	if _, err := New(Options{Nodes: 0}); !errors.Is(err, config.ErrInvalid) {
		t.Errorf("no nodes: %v", err)
	}
	if _, err := New(Options{Nodes: config.MaxLocal + 1}); !errors.Is(err, config.ErrInvalid) {
		t.Errorf("too many nodes: %v", err)
	}
	s, _ := supervise(t, "short", 2, func(o *Options) { o.Binary = filepath.Join(o.Dir, "none") })
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "start node 0") {
		t.Errorf("no binary: %v", err)
	}
}

// TestMergeForgetsTheOldest bounds the memory of a long run.
func TestMergeForgetsTheOldest(t *testing.T) {
	out := newRecord()
	m := newMerge(out, func() {})
	step := func(n int) api.Event { return api.Event{Kind: api.KindStep, Step: planner.Step(n)} }
	for n := range rememberedEvents + 5 {
		m.event(0, step(n))
		m.event(1, step(n))
	}
	if len(out.events) != rememberedEvents+5 {
		t.Errorf("%d events shown, want %d", len(out.events), rememberedEvents+5)
	}
	if len(m.seen) != rememberedEvents || len(m.order) != rememberedEvents {
		t.Errorf("remembers %d and %d", len(m.seen), len(m.order))
	}
	m.event(2, step(10)) // still remembered
	if len(out.events) != rememberedEvents+5 {
		t.Error("a remembered step was shown again")
	}
}
