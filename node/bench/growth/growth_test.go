package growth

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pnode/node/api"
	"pnode/node/bench"
	"pnode/node/config"
	"pnode/pipeline/model"
	"pnode/planner/plan"
)

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Abs(b) }

// TestBounds: each bound is what is written beside it, by hand.
func TestBounds(t *testing.T) {
	l := line{bytesPerS: 1000, latencyS: .01}
	costs := []model.LayerCost{
		{ForwardFLOPs: 100, InputFLOPs: 70, WeightFLOPs: 50, ForwardElementwise: 10, InputElementwise: 5, WeightElementwise: 1},
		{ForwardFLOPs: 1},
	}
	for _, c := range []struct {
		what      string
		got, want float64
	}{
		{"operations without those of elements", float64(multiplied(costs)), 205},
		{"205 operations at 50 a second", computing(205, 50), 4.1},
		{"500 bytes at 1,000 a second and 10 ms", l.travel(500), .51},
		{"one stage", pipelined(8, 1, .5, .1), 4},
		{"8 micro-batches through 3 stages: 10 of .5 s, 4 messages", pipelined(8, 3, .5, .1), 5.4},
		{"one replica has nothing to add", summed(1, 1000, l), 0},
		{"2 replicas send a half twice", summed(2, 1000, l), 1.02},
		{"4 replicas send three quarters twice", summed(4, 1000, l), 1.52},
		{"computing takes longer", everyStep(2, 1.5), 2},
		{"the line takes longer", everyStep(1, 1.5), 1.5},
	} {
		if !near(c.got, c.want) {
			t.Errorf("%s: %v, want %v", c.what, c.got, c.want)
		}
	}
}

// TestBoundsOfRows: with more nodes a pipeline's bound grows by a stage's time and two messages for each, that of replicas by their sums, and that of
// replicas with local steps not at all.
func TestBoundsOfRows(t *testing.T) {
	one := computing(multiplied(newFleetCase(Local, 1).spec.Costs(model.StorageF32)), emulatedRate)
	for _, nodes := range []int{2, 16, 64} {
		if got := newFleetCase(Local, nodes).bound(); !near(got, replicaMicros*one) {
			t.Errorf("%d replicas with local steps: %v s, want %v", nodes, got, replicaMicros*one)
		}
		c := newFleetCase(Replicas, nodes)
		if got, least := c.bound(), 2*float64(nodes-1)/float64(nodes)*float64(gradientBytes(c.spec.Model))/float64(emulatedLine.bytesPerS); got < least || got < replicaMicros*one {
			t.Errorf("%d replicas: %v s, want at least %v and %v", nodes, got, least, replicaMicros*one)
		}
		c = newFleetCase(Nodes, nodes)
		stage := computing(multiplied(c.spec.Costs(model.StorageF32)), emulatedRate) / float64(nodes)
		want := float64(pipelineMicros+nodes-1)*stage + 2*float64(nodes-1)*(float64(4*64*64)/float64(emulatedLine.bytesPerS)+.005)
		if got := c.bound(); !near(got, want) {
			t.Errorf("%d nodes: %v s, want %v", nodes, got, want)
		}
	}
}

// TestGradientsAreCounted: the head's copy of the embedding has no gradient of its own.
func TestGradientsAreCounted(t *testing.T) {
	m := model.Config{Vocab: 10, Context: 4, Blocks: 1, Heads: 1, Channels: 8}
	var want int64
	for l := range m.Layers() {
		want += int64(4 * m.LayerLen(l))
	}
	if got := gradientBytes(m); got != want-4*10*8 {
		t.Errorf("%d bytes, want %d", got, want-4*10*8)
	}
}

// TestComputedSizes: an axis changes one thing.
func TestComputedSizes(t *testing.T) {
	usual := computedModel
	longer, deeper := usual, usual
	longer.Context, deeper.Blocks = 99, 99
	for a, want := range map[Axis]struct {
		m      model.Config
		micros int
	}{Tokens: {usual, 99}, Sequence: {longer, 1}, Layers: {deeper, 1}} {
		if m, micros := computedSize(a, 99); m != want.m || micros != want.micros {
			t.Errorf("%s: %+v with %d micro-batches", a, m, micros)
		}
	}
}

// TestRefusedOptions: an error names the flag, the value and what is accepted.
func TestRefusedOptions(t *testing.T) {
	for text, o := range map[string]Options{
		"--nodes is 65: take 1 to 64":                {Nodes: []int{1, 65}},
		"--replicas is 0: take 1 to 64":              {Replicas: []int{0}},
		"--micros is -1: take 1 to 4096":             {Micros: []int{-1}},
		"--rounds is -3: take 1 to 1000":             {Rounds: -3},
		`--only is "depth": take one of tokens, seq`: {Only: []string{"depth"}},
		"--threads is -1: take 1 to 1024":            {Threads: -1},
	} {
		if _, err := Measure(context.Background(), o); !errors.Is(err, bench.ErrOptions) || !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want %q", err, text)
		}
	}
	o := Options{Nodes: []int{8, 2, 8}}
	if err := o.fill(); err != nil || len(o.Nodes) != 2 || o.Nodes[0] != 2 {
		t.Errorf("sizes %v, %v", o.Nodes, err)
	}
	if o.Replicas = []int{1, 4}; len(o.sizes(Local)) != 1 || len(o.sizes(Replicas)) != 2 {
		t.Errorf("replicas %v, with local steps %v", o.sizes(Replicas), o.sizes(Local))
	}
}

// TestScrapes: what nodes tell is read by series, and the difference of two looks is what a node spent.
func TestScrapes(t *testing.T) {
	text := func(cpu, log, writes, gossip, leader string) string {
		return "# HELP process_cpu_seconds_total x\n# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total " + cpu +
			"\npnode_raft_leader " + leader + "\npnode_control_sent_bytes_total{kind=\"log\"} " + log + "\npnode_control_sent_bytes_total{kind=\"gossip\"} " + gossip +
			"\npnode_control_sent_writes_total{kind=\"log\"} " + writes + "\npnode_sent_bytes_total{kind=\"activation\"} " + log + "\nbroken\nodd x\n"
	}
	before := []scrape{parseScrape(text("1", "100", "10", "0", "1")), parseScrape(text("2", "1e3", "10", "0", "0"))}
	after := []scrape{parseScrape(text("1.5", "300", "30", "100", "1")), parseScrape(text("2.1", "1200", "10", "700", "0"))}
	c := controlOf(before, after, 10, 5)
	for what, pair := range map[string][2]float64{
		"processor time": {c.CPUMS, 60}, "the leader's": {c.LeaderCPUMS, 100}, "bytes": {c.BytesPerS, 60}, "most bytes": {c.MostBytesPerS, 90}, "writes": {c.WritesPerS, 1},
		"payload": {c.DataBytes, 40}, "bytes of the log": {c.Sent["log"].BytesPerS, 20}, "of gossip": {c.Sent["gossip"].BytesPerS, 40}, "writes of the log": {c.Sent["log"].WritesPerS, 1},
	} {
		if !near(pair[0], pair[1]) {
			t.Errorf("%s: %v, want %v", what, pair[0], pair[1])
		}
	}
}

// TestWatcherTakesRounds: times count from the end of the warm steps on, a round after the other, and a run that ends before has no row.
func TestWatcherTakesRounds(t *testing.T) {
	stopped := make(chan struct{})
	w := &watcher{ctx: t.Context(), stop: func() { close(stopped) }, dir: t.TempDir(), nodes: 1, rounds: 2, note: func(string) {}, began: time.Now()}
	for step := plan.Step(1); step < warmSteps+2*roundSteps; step++ {
		w.Event(api.Event{Kind: api.KindStep, Step: step})
		w.Event(api.Event{Kind: api.KindCheckpoint, Step: step})
	}
	if _, err := w.row(); !errors.Is(err, errNoSteps) {
		t.Errorf("%v, want %v", err, errNoSteps)
	}
	select {
	case <-stopped:
		t.Error("the run is stopped before it was looked at again")
	default:
	}
	w.Event(api.Event{Kind: api.KindStep, Step: warmSteps + 2*roundSteps})
	<-stopped
	w.Event(api.Event{Kind: api.KindStep, Step: warmSteps + 3*roundSteps})
	if _, err := w.row(); !errors.Is(err, api.ErrNoNode) { // nobody is there to be asked
		t.Errorf("%v, want %v", err, api.ErrNoNode)
	}
	if w.looks[0].step != warmSteps || w.looks[1].step != warmSteps+2*roundSteps || len(w.at) != 3 {
		t.Errorf("looked at steps %d and %d, %d times", w.looks[0].step, w.looks[1].step, len(w.at))
	}
}

// TestFleetsHaveValidSettings: the files and settings of each kind of run are accepted, and its nodes can be planned.
func TestFleetsHaveValidSettings(t *testing.T) {
	for _, a := range []Axis{Nodes, Replicas, Local} {
		folder, c := t.TempDir(), newFleetCase(a, 3)
		if err := c.write(folder); err != nil {
			t.Fatal(a, err)
		}
		s := c.config(folder, 20)
		if err := s.Validate(); err != nil {
			t.Error(a, err)
		}
		cluster, err := config.LoadCluster(filepath.Join(folder, "cluster.yaml"))
		if err != nil || len(cluster.Nodes()) != 3 || cluster.Nodes()[0].MatMul != emulatedRate || cluster.Nodes()[0].Computes() {
			t.Errorf("%s: %+v, %v", a, cluster, err)
		}
		if _, err := os.Stat(filepath.Join(folder, "model", "config.json")); err != nil {
			t.Error(a, err)
		}
		if _, err := c.planned(t.Context(), s); err != nil {
			t.Errorf("%s: plan: %v", a, err)
		}
	}
}

// TestText: a table an axis, what grew by how much, and where it ended.
func TestText(t *testing.T) {
	r := Report{CPU: "a processor", Cores: 2, Rounds: 3, Partial: "replicas 1", Rows: []Row{
		{Axis: Tokens, Size: 1, StepMS: 10, BoundMS: 5, Ratio: 2, TokensPerS: 100, MemoryBytes: 2e6},
		{Axis: Tokens, Size: 4, StepMS: 30, BoundMS: 20, Ratio: 1.5, TokensPerS: 133, MemoryBytes: 3e6},
		{Axis: Nodes, Size: 2, StepMS: 10, BoundMS: 10, Ratio: 1, Control: &Control{CPUMS: 1.25, LeaderCPUMS: 2.5, WritesPerS: 7, BytesPerS: 1500, MostBytesPerS: 3000, DataBytes: 4000, PlanMS: 12, StartS: 3}},
	}}
	got := strings.Join(strings.Fields(r.Text()), " ")
	for _, want := range []string{
		"a processor, 2 cores, medians of 3 rounds of 4 steps.", "micros step bound seen/bound tokens/s memory 1 10.0 ms 5.0 ms 2.00 100 2 MB",
		"From 1 to 4 the step takes 3.00 times as long, the bound 4.00: 0.75 times what it must.",
		"2 10.0 ms 10.0 ms 1.00 0 0 MB 1.2 ms/step 2.5 ms/step 7.0 writes/s, 1.50 kB/s 3.00 kB/s 4.0 kB/step 12 ms 3.0 s", "PARTIAL: ended before replicas 1.",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, r.Text())
		}
	}
}

// TestComputedRows: rows of each computed axis, in their order, whose bounds grow with what grows.
func TestComputedRows(t *testing.T) {
	var shown []string
	r, err := Measure(t.Context(), Options{
		Only: []string{"layers", "tokens", "sequence"}, Micros: []int{1, 2}, Sequences: []int{16, 64}, Blocks: []int{1, 2}, Rounds: 1, Threads: 1,
		Progress: func(text string) { shown = append(shown, text) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != 6 || len(shown) != 6 || !strings.HasPrefix(shown[0], "tokens 1 (1 of 6") {
		t.Fatalf("%d rows, %q", len(r.Rows), shown)
	}
	for i, row := range r.Rows {
		if want := Axis(Axes()[i/2]); row.Axis != want || row.StepMS <= 0 || row.BoundMS <= 0 || row.Ratio <= 0 || row.TokensPerS <= 0 || row.MemoryBytes <= 0 || row.Control != nil {
			t.Errorf("row %d, want one of %s: %+v", i, want, row)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	r, err = Measure(ctx, Options{Only: []string{"tokens"}, Micros: []int{1, 2}, Rounds: 1, Threads: 1, Progress: func(text string) {
		if strings.HasPrefix(text, "tokens 2") {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) || len(r.Rows) != 1 || r.Partial != "tokens 2" {
		t.Errorf("interrupted: %d rows, partial %q, %v", len(r.Rows), r.Partial, err)
	}
}
