package pipeline

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"

	"pnode/kernels/cpu"
	"pnode/kernels/host"
	"pnode/pipeline/collective"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// apartRun has dropout, so that a wrong number of a micro-batch shows, and shares of different sizes.
func apartRun() plan.RunSpec {
	run := families()["llama"]
	run.Train.Micros, run.Train.Steps = 6, 3
	return run
}

// apart makes a local plan of replicas with these shares, cut at these layers. Stages are on the same peers, on a device for each replica.
func apart(run plan.RunSpec, shares []int, bounds ...[]int) plan.Plan {
	p, next := cut(run, "1f1b", bounds...), 0
	p.Local = &plan.Local{Rounds: plan.Rounds{Every: 50, Fragments: 1}, Codec: "f32"}
	for r := range p.Replicas {
		pipe := &p.Replicas[r]
		pipe.FirstMicro, pipe.Micros, next = plan.Micro(next), shares[r], next+shares[r]
		for s := range pipe.Stages {
			pipe.Stages[s].Peer, pipe.Stages[s].Device = plan.PeerID(fmt.Sprintf("peer-%d", s)), fmt.Sprintf("cpu-%d", r)
		}
	}
	return p
}

// parted has what a replica's steps gave: losses by step, and the state after the last one by layer.
type parted struct {
	losses map[plan.Step]float64
	added  map[plan.Step][]plan.Micro // of its first stage
	state  map[int][]byte
}

// trainApart trains replicas of a local plan side by side, over one network, which never meet.
func trainApart(t *testing.T, run plan.RunSpec, p plan.Plan, replicas ...plan.Replica) []parted {
	t.Helper()
	var mu sync.Mutex // guards all
	net, all, keepers, workers := collective.NewMemory(), make([]parted, len(p.Replicas)), make([]*memoryKeeper, len(p.Replicas)), []*Worker(nil)
	for _, r := range replicas {
		own, alone := plan.Alone(run, p, r)
		keepers[r] = &memoryKeeper{}
		out := &all[r]
		*out = parted{losses: map[plan.Step]float64{}, added: map[plan.Step][]plan.Micro{}}
		for _, id := range alone.Workers() {
			processor, err := cpu.New(cpu.Options{Threads: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer processor.Close()
			w, err := New(usual(Config{
				Worker: id, Run: own, Plan: alone, Replica: r, First: p.Replicas[r].FirstMicro, Device: processor, Host: &host.Memory{},
				Exchange: expecting{net.End(id.Peer), t, run, p}, Keeper: from{keepers[r], 0},
				OnStep: func(s StepResult) {
					mu.Lock()
					defer mu.Unlock()
					if loss, known := out.losses[s.Step]; known && loss != s.Loss && !s.Final {
						t.Errorf("replica %d step %d: workers report %v and %v", r, s.Step, loss, s.Loss)
					}
					if !s.Final {
						out.losses[s.Step] = s.Loss
						out.added[s.Step] = slices.Sorted(slices.Values(s.Added[0]))
					}
				},
			}))
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			workers = append(workers, w)
		}
	}
	runAll(t, workers)
	for _, r := range replicas {
		all[r].state = keepers[r].layers[run.Train.Steps]
	}
	return all
}

// TestReplicasApartAreRunsOfOneReplica: replicas that train side by side and never meet have the bits of runs of one replica on one worker, however
// each is cut, and though their messages go between the same peers.
func TestReplicasApartAreRunsOfOneReplica(t *testing.T) {
	run, shares := apartRun(), []int{2, 4}
	whole := apart(run, shares, []int{0}, []int{0})
	want := []parted{trainApart(t, run, whole, 0)[0], trainApart(t, run, whole, 1)[1]}
	for _, bounds := range [][2][]int{{{0}, {0}}, {{0, 2}, {0, 3}}, {{0, 2, 3}, {0, 1}}, {{0}, {0, 1, 4}}} {
		got := trainApart(t, run, apart(run, shares, bounds[0], bounds[1]), 0, 1)
		for r := range want {
			for step := plan.Step(1); step <= run.Train.Steps; step++ {
				if math.Float64bits(got[r].losses[step]) != math.Float64bits(want[r].losses[step]) {
					t.Errorf("cut at %v: replica %d step %d: loss %v, alone %v", bounds, r, step, got[r].losses[step], want[r].losses[step])
				}
			}
			if len(got[r].state) != run.Model.Layers() {
				t.Errorf("cut at %v: replica %d has saved %d layers of %d", bounds, r, len(got[r].state), run.Model.Layers())
			}
			for layer, state := range want[r].state {
				if !bytes.Equal(state, got[r].state[layer]) {
					t.Errorf("cut at %v: replica %d layer %d: another state than alone", bounds, r, layer)
				}
			}
		}
	}
	if bytes.Equal(want[0].state[1], want[1].state[1]) {
		t.Error("both replicas have learned the same")
	}
}

// TestReplicasApartShareAStep: in the first step, when both have the same parameters, their losses are of the micro-batches that they would have in common
// steps, with the same dropout: the mean is that of the step of both.
func TestReplicasApartShareAStep(t *testing.T) {
	run := apartRun()
	run.Train.Steps = 1
	p := apart(run, []int{2, 4}, []int{0}, []int{0, 2})
	got := trainApart(t, run, p, 0, 1)
	together := p
	together.Local = nil
	for r := range together.Replicas {
		for s := range together.Replicas[r].Stages { // peers of their own: a collective knows them by these
			together.Replicas[r].Stages[s].Peer = plan.PeerID(fmt.Sprintf("peer-%d-%d", r, s))
		}
	}
	want := math.Float64frombits(train(t, run, together, &memoryKeeper{}).losses[1])
	if mean := (2*got[0].losses[1] + 4*got[1].losses[1]) / 6; math.Abs(mean-want) > 1e-9*want {
		t.Errorf("losses %v and %v have the mean %v, a common step has %v", got[0].losses[1], got[1].losses[1], mean, want)
	}
	if added := fmt.Sprint(got[0].added[1], got[1].added[1]); added != "[0 1] [2 3 4 5]" {
		t.Errorf("the replicas have trained on the micro-batches %s", added)
	}
}

// TestNothingGoesBetweenReplicasApart within a step: sums, reports and commits stay within one.
func TestNothingGoesBetweenReplicasApart(t *testing.T) {
	run := apartRun()
	p := apart(run, []int{2, 4}, []int{0, 2}, []int{0, 2})
	common := p
	common.Local = nil
	for r := range 2 {
		for s := range p.Replicas[r].Stages {
			p.Replicas[r].Stages[s].Peer = plan.PeerID(fmt.Sprintf("peer-%d-%d", r, s))
		}
	}
	own, alone := plan.Alone(run, p, 1)
	report := (&program{spec: own, plan: alone, worker: alone.Workers()[0]}).controlTag(alone.Workers()[0], wire.KindReport, 1)
	report.Replica = 1
	if err := Expected(run, p)("peer-1-0", "peer-1-1", report, 8); err != nil {
		t.Errorf("a report within replica 1: %v", err)
	}
	if err := Expected(run, p)("peer-1-0", "peer-0-1", report, 8); err == nil {
		t.Error("a report of replica 1 goes to the coordinator of replica 0")
	}
	if err := Expected(run, common)("peer-1-0", "peer-0-1", report, 8); err != nil {
		t.Errorf("a report in a common step: %v", err)
	}
	report.Replica = 2
	if err := Expected(run, p)("peer-1-0", "peer-1-1", report, 8); err == nil {
		t.Error("a report of no replica")
	}
}
