package pipeline

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	"pnode/kernels/cpu"
	"pnode/pipeline/collective"
	"pnode/pipeline/replay"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// committed notes the commits that the coordinator sends.
type committed struct {
	collective.Exchange
	mu   *sync.Mutex // guards made
	made map[plan.Step]wire.Commit
}

func (c committed) Send(ctx context.Context, to plan.PeerID, f wire.Frame) error {
	if f.Tag.Kind == wire.KindCommit && f.Tag.Step > 0 {
		commit, err := wire.DecodeCommit(f.Payload)
		if err != nil {
			return err
		}
		c.mu.Lock()
		c.made[f.Tag.Step] = commit
		c.mu.Unlock()
	}
	return c.Exchange.Send(ctx, to, f)
}

// recorded is a run whose messages were kept.
type recorded struct {
	run     plan.RunSpec
	plan    plan.Plan
	states  *memoryKeeper
	commits map[plan.Step]wire.Commit
	kept    map[plan.PeerID]*replay.Logs
	logs    map[plan.PeerID]*replay.Log // of these
}

// record trains with a plan.
func record(t *testing.T, run plan.RunSpec, p plan.Plan) recorded {
	t.Helper()
	r := recorded{run, p, &memoryKeeper{}, map[plan.Step]wire.Commit{}, map[plan.PeerID]*replay.Logs{}, map[plan.PeerID]*replay.Log{}}
	net, mu := collective.NewMemory(), &sync.Mutex{}
	var workers []*Worker
	for _, id := range p.Workers() {
		if r.logs[id.Peer] == nil {
			r.kept[id.Peer] = replay.NewLogs(id.Peer)
			r.logs[id.Peer] = r.kept[id.Peer].Begin(1, 0, 1<<30)
		}
		exchange := committed{net.End(id.Peer), mu, r.commits}
		workers = append(workers, r.worker(t, Config{Worker: id, Plan: p, Keeper: from{r.states, 0}, Exchange: r.logs[id.Peer].Keep(exchange)}))
	}
	runAll(t, workers)
	return r
}

func (r recorded) worker(t *testing.T, c Config) *Worker {
	t.Helper()
	device, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { device.Close() })
	c.Run, c.Device = r.run, device
	w, err := New(usual(c))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

// again replays the workers of lost peers from the states of one step to another.
func (r recorded) again(t *testing.T, lost []plan.PeerID, start, last plan.Step) (*memoryKeeper, error) {
	t.Helper()
	var living []plan.PeerID
	for peer := range r.logs {
		if !slices.Contains(lost, peer) {
			living = append(living, peer)
		}
	}
	source := func(_ context.Context, peer plan.PeerID, step plan.Step) ([]replay.Message, error) {
		messages, ok := r.logs[peer].Sent(step, lost)
		if !ok {
			return nil, replay.ErrNotKept
		}
		return replay.DecodeMessages(replay.AppendMessages(nil, messages), r.plan.Generation, step, lost)
	}
	frames := replay.NewFrames(t.Context(), living, lost, last, source)
	var commits []wire.Commit
	for step := start + 1; step <= last; step++ {
		commits = append(commits, r.commits[step])
	}
	p, got := r.plan, &memoryKeeper{layers: map[plan.Step]map[int][]byte{start: r.states.layers[start]}}
	p.Start = start
	group, ctx := errgroup.WithContext(t.Context())
	var workers []*Worker
	for _, id := range p.Workers() {
		if slices.Contains(lost, id.Peer) {
			w := r.worker(t, Config{Worker: id, Plan: p, Keeper: from{got, start}, Exchange: frames.For(id.Peer), Replay: commits, SecondTry: secondTry(p, r.commits[start])})
			workers = append(workers, w)
			group.Go(func() error { return errors.Join(w.Run(ctx, ctx), w.Saved()) })
		}
	}
	if err := group.Wait(); err != nil {
		return got, err
	}
	for _, w := range workers {
		held, err := w.Retain()
		if err != nil {
			return got, err
		}
		for _, at := range held.Reach() {
			if err := held.Save(t.Context(), got.Save, at.StageID, p.At(at.StageID).Layers); err != nil {
				return got, err
			}
		}
	}
	return got, nil
}

// TestAReplayGivesTheBitsOfTheStepsBefore: whichever workers are lost, their state after some steps is what it was,
// computed from the messages of the others alone.
func TestAReplayGivesTheBitsOfTheStepsBefore(t *testing.T) {
	run := testRun()
	run.Train.Steps, run.Train.CheckpointEvery, run.Model.ResidualDropout = 4, 1, 0.25
	line := cut(run, "1f1b", []int{0, 1, 2, 4})
	coded, rotated := withCodec(cut(run, "1f1b", []int{0, 2, 3}), "int8"), withCodec(cut(run, "1f1b", []int{0, 2, 3}), "int4")
	pair := cut(run, "1f1b", []int{0, 2}, []int{0, 2})
	for name, c := range map[string]struct {
		plan plan.Plan
		lost [][]plan.PeerID
	}{
		"steps before their commit": {validated(line), [][]plan.PeerID{{"peer-0-1"}, {"peer-0-3"}, {"peer-0-0", "peer-0-3"}}},
		"a line":                    {line, [][]plan.PeerID{{"peer-0-0"}, {"peer-0-1"}, {"peer-0-3"}, {"peer-0-1", "peer-0-2"}, {"peer-0-0", "peer-0-3"}}},
		"in int8":                   {coded, [][]plan.PeerID{{"peer-0-1"}, {"peer-0-2"}}},
		"in int4":                   {rotated, [][]plan.PeerID{{"peer-0-1"}, {"peer-0-2"}}},
		"replicas":                  {pair, [][]plan.PeerID{{"peer-0-0", "peer-1-0"}, {"peer-0-1"}}},
		"all of it":                 {cut(run, "1f1b", []int{0, 3}), [][]plan.PeerID{{"peer-0-0", "peer-0-1"}}},
	} {
		t.Run(name, func(t *testing.T) {
			run := run
			if c.plan.PostValidation { // clipped in some of its steps
				run.Train.ClipNorm = 3
			}
			r := record(t, run, c.plan)
			for _, lost := range c.lost {
				got, err := r.again(t, lost, 1, 3)
				if err != nil {
					t.Fatalf("%v: %v", lost, err)
				}
				layers := 0
				for layer, state := range got.layers[3] {
					layers++
					if !bytes.Equal(state, r.states.layers[3][layer]) {
						t.Errorf("%v: layer %d is not what it was", lost, layer)
					}
				}
				if layers == 0 {
					t.Errorf("%v: nothing was saved", lost)
				}
			}
		})
	}
}

// TestAReplayWithoutAMessageEnds and names it.
func TestAReplayWithoutAMessageEnds(t *testing.T) {
	run := testRun()
	run.Train.Steps, run.Train.CheckpointEvery = 4, 1
	r := record(t, run, cut(run, "1f1b", []int{0, 2}))
	r.kept["peer-0-0"].Forget(3)
	if _, err := r.again(t, []plan.PeerID{"peer-0-1"}, 1, 3); !errors.Is(err, replay.ErrNotKept) {
		t.Errorf("got %v", err)
	}
	if got, err := r.again(t, []plan.PeerID{"peer-0-1"}, 2, 3); err != nil || len(got.layers[3]) == 0 {
		t.Errorf("after what was forgotten: %v", err)
	}
}
