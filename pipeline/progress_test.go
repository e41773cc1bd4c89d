package pipeline

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pnode/pipeline/collective"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// mute has frames of a kind carry the step before theirs: their sender is alive and says nothing.
func mute(kind wire.Kind, from plan.Step) func(wire.Frame) wire.Frame {
	return func(f wire.Frame) wire.Frame {
		if f.Tag.Kind == kind && f.Tag.Step >= from {
			f.Tag.Step += 1 << 20 // once each, so that the network of this test takes it
		}
		return f
	}
}

// TestMuteButAlive: a peer whose frames name another step ends the generation, whatever it owes, and is named
// with that by whoever waits for it. Those who wait for the waiting say nothing.
func TestMuteButAlive(t *testing.T) {
	run := testRun()
	run.Train.CheckpointEvery = 0
	line, pair := cut(run, "1f1b", []int{0, 1, 2, 4}), cut(run, "1f1b", []int{0, 2}, []int{0, 2})
	for name, c := range map[string]struct {
		plan  plan.Plan
		by    plan.PeerID
		kind  wire.Kind
		step  plan.Step
		words string
	}{
		"activations":          {line, "peer-0-1", wire.Activation, 3, "stage 1's activations of micro-batch 0 did not come"},
		"the first":            {line, "peer-0-0", wire.Activation, 3, "stage 0's activations of micro-batch 0 did not come"},
		"gradients":            {line, "peer-0-2", wire.Gradient, 3, "stage 2's gradients of micro-batch 0 did not come"},
		"the last's gradients": {line, "peer-0-3", wire.Gradient, 3, "stage 3's gradients of micro-batch 0 did not come"},
		"a tied embedding":     {line, "peer-0-0", wire.TiedGrad, 3, "tied embedding did not come"},
		"a replica's part":     {pair, "peer-1-1", wire.ReducePart, 3, "replica 1's part of layer "},
		"a sum":                {pair, "peer-1-0", wire.GatherPart, 3, "that replica 1 owns did not come"},
		"parameters":           {sharded(pair), "peer-1-0", wire.GatherPart, 2, "that replica 1 owns did not come"},
		"a report":             {line, "peer-0-1", wire.KindReport, 3, "the report of replica 0 stage 1 did not come"},
		"a commit":             {line, "peer-0-3", wire.KindCommit, 3, "the coordinator's commit did not come"},
		"the first step":       {line, "peer-0-2", wire.Activation, 1, "stage 2's gradients of micro-batch 0 did not come"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				attack{run: run, plan: c.plan, by: c.by, change: mute(c.kind, c.step)}.wantBlame(t, plan.NoProgress, c.step, c.words)
				most := leastPatience + 10*leastStagger
				if c.step == 1 {
					most = firstPatience + 3*firstStagger
				}
				if took := time.Since(begin); took < leastPatience || took > most {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// TestMuteInTheNextGeneration: who was mute before is not waited for as long as a first step may take.
func TestMuteInTheNextGeneration(t *testing.T) {
	run := testRun()
	a := attack{run: run, plan: cut(run, "1f1b", []int{0, 2, 3}), by: "peer-0-0", change: mute(wire.Activation, 1)}
	a.config = func(c *Config) { c.Usual = time.Second }
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		a.wantBlame(t, plan.NoProgress, 1, "stage 0's activations of micro-batch 0 did not come")
		if took := time.Since(begin); took < renewedPatience || took > renewedPatience+2*renewedStagger {
			t.Errorf("it took %v", took)
		}
	})
}

// slowLink is an exchange on which a message takes a while to come, piece by piece, as a link tells.
type slowLink struct {
	collective.MemoryEnd
	takes time.Duration
	mu    *sync.Mutex // guards bytes
	bytes *uint64     // at both ends
}

func (l slowLink) Receive(ctx context.Context, from plan.PeerID, tag wire.Tag) ([]byte, error) {
	payload, err := l.MemoryEnd.Receive(ctx, from, tag)
	if tag.Kind != wire.Activation || tag.Step != 2 {
		return payload, err
	}
	for range 10 {
		select {
		case <-time.After(l.takes / 10):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		l.mu.Lock()
		*l.bytes++
		l.mu.Unlock()
	}
	return payload, err
}

func (l slowLink) Moved(plan.Step) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return *l.bytes
}

// TestSlowIsNotMute: neither a link on which one message takes minutes, nor steps that do, nor a peer that loads
// for half an hour are faults.
func TestSlowIsNotMute(t *testing.T) {
	run := testRun()
	p := cut(run, "1f1b", []int{0, 2})
	wantNone := func(t *testing.T, change func(*Config)) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			for peer, err := range (attack{run: run, plan: p, config: change}).errsOf(t) {
				if err != nil {
					t.Errorf("%s: %v", peer, err)
				}
			}
		})
	}
	t.Run("link", func(t *testing.T) {
		mu, bytes := &sync.Mutex{}, new(uint64)
		wantNone(t, func(c *Config) { c.Exchange = slowLink{c.Exchange.(collective.MemoryEnd), 4 * time.Minute, mu, bytes} })
	})
	t.Run("steps", func(t *testing.T) {
		wantNone(t, func(c *Config) {
			c.Data = slowText{c.Data, func(step plan.Step) time.Duration { return time.Duration(step) * time.Minute }}
		})
	})
	t.Run("loading", func(t *testing.T) {
		begin := time.Now()
		wantNone(t, func(c *Config) {
			begin = time.Now() // of the bubble
			if c.Worker.Peer == "peer-0-0" {
				c.OnLoaded = func() { time.Sleep(loadPatience / 2) }
			}
			c.Loaded = func(plan.PeerID) bool { return time.Since(begin) > loadPatience/2 }
		})
	})
}

// slowText takes a while for the tokens of each step's first micro-batch.
type slowText struct {
	Data
	takes func(plan.Step) time.Duration
}

func (s slowText) Micro(ctx context.Context, step plan.Step, micro plan.Micro, batch int) (tokens, targets []int32, err error) {
	if micro == 0 {
		time.Sleep(s.takes(step))
	}
	return s.Data.Micro(ctx, step, micro, batch)
}

// TestWhoNeverLoadsIsNamed: a peer that says for an hour that it loads is late.
func TestWhoNeverLoadsIsNamed(t *testing.T) {
	run := testRun()
	a := attack{run: run, plan: cut(run, "1f1b", []int{0, 2, 3}), by: "peer-0-1", change: mute(wire.Activation, 1)}
	a.config = func(c *Config) { c.Loaded = func(p plan.PeerID) bool { return p != "peer-0-1" } }
	synctest.Test(t, func(t *testing.T) { a.wantBlame(t, plan.NoProgress, 1, "has not loaded its state in 1 h") })
}

// progressOf watches over the first worker of a plan, in step 3.
func progressOf(t *testing.T, run plan.RunSpec, at plan.Plan) *progress {
	t.Helper()
	program, err := newProgram(run, at, at.Workers()[0])
	if err != nil {
		t.Fatal(err)
	}
	p := newProgress(&Config{Worker: at.Workers()[0]}, program)
	p.begin(3, program)
	return p
}

// TestWhoTakesNothingIsNamed: a peer that lives and does not read what is sent to it is late, too.
func TestWhoTakesNothingIsNamed(t *testing.T) {
	run := testRun()
	at := cut(run, "1f1b", []int{0, 2})
	synctest.Test(t, func(t *testing.T) {
		p := progressOf(t, run, at)
		tag := wire.Tag{Kind: wire.Activation, Generation: 1, Step: 3, Stage: 1, Index: 2}
		err := p.await(t.Context(), "peer-0-1", tag, true, func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		fault := wantFault(t, err, plan.Fault{Accused: "peer-0-1", Kind: plan.NoProgress, Step: 3})
		if want := "it does not take stage 0's activations of micro-batch 2"; !strings.Contains(fault.Detail, want) {
			t.Errorf("%v, want %q", fault, want)
		}
	})
}
