package local

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"

	"pnode/node/api"
	"pnode/node/config"
	"pnode/planner/plan"
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
func (r *record) stepsOf(g plan.Generation) []int {
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
	o.Config.Name = "node"
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

// numbered names nodes as those of supervise are.
func numbered(node int) string { return fmt.Sprintf("node-%d", node) }

func numbers(from, to int) []int {
	var n []int
	for i := from; i <= to; i++ {
		n = append(n, i)
	}
	return n
}
