package bench

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pnode/kernels/emulate"
	"pnode/kernels/null"
	"pnode/pipeline"
	"pnode/pipeline/link"
	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/plan"
	"pnode/planner/sim"
)

// TestStepsBeforeTheirCommit measures steps whose workers wait for commits, and of those that do not, with real workers over emulated
// lines, beside the simulator's.
func TestStepsBeforeTheirCommit(t *testing.T) {
	if testing.Short() {
		t.Skip("a minute of QUIC")
	}
	for _, stages := range []int{2, 4} {
		c, err := newScheduleCase(stages, 60*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		c.model.UntiedHead = true
		for _, delay := range []time.Duration{time.Millisecond, 10 * time.Millisecond} {
			shape := link.LinkConditions{BytesPerS: 1e9 / 8, Delay: delay}
			synctest.Test(t, func(t *testing.T) {
				rig, err := newScheduleRig(stages, shape)
				if err != nil {
					t.Fatal(err)
				}
				defer rig.close()
				c.peers = rig.peers
				for _, kind := range []string{"1f1b", "zb-h2", "zb-v"} {
					for _, micros := range []int{4, 8, 16} {
						if kind == "zb-h2" && micros < 2*stages-1 {
							continue
						}
						c.micros = micros
						waits, ahead := rig.pace(t, c, kind, false), rig.pace(t, c, kind, true)
						simulated, simulatedAhead := c.paces(t, kind, shape)
						t.Logf("| %s | %d | %d | %v | %.0f | %.0f | %.1f%% | %.0f | %.0f |", kind, stages, micros, delay,
							milliseconds(waits), milliseconds(ahead), 100-100*float64(ahead)/float64(waits), milliseconds(simulated), milliseconds(simulatedAhead))
						if ahead > waits+waits/50 {
							t.Errorf("%s on %d stages, %d micro-batches, %v: a step takes %v, with waits %v", kind, stages, micros, delay, ahead, waits)
						}
						for _, p := range [][2]time.Duration{{waits, simulated}, {ahead, simulatedAhead}} {
							if off := float64(p[1])/float64(p[0]) - 1; off < -0.06 || off > 0.06 {
								t.Errorf("%s on %d stages, %d micro-batches, %v: the simulator is %.1f%% off", kind, stages, micros, delay, 100*off)
							}
						}
					}
				}
			})
		}
	}
}

// pace returns the time of a step, from commit to commit.
func (r *scheduleRig) pace(t *testing.T, c *scheduleCase, kind string, ahead bool) time.Duration {
	const steps = 7
	r.generation++
	warmups := schedule.DepthWarmups(c.stages, 1)
	if kind != "1f1b" {
		warmups = nil
	}
	p, err := c.plan(trial{spec: kind, warmups: warmups}, r.generation)
	if err != nil {
		t.Fatal(err)
	}
	p.PostValidation = ahead
	run := newRun(c.model)
	run.Train.Micros = c.micros
	var configs []pipeline.Config
	for i, e := range r.endpoints {
		device, err := emulate.New(null.New(), emulate.Options{Name: "cpu", Profile: c.profiles[i], Slack: emulate.PacedSlack})
		if err != nil {
			t.Fatal(err)
		}
		session := e.Session(r.generation, r.peers)
		defer session.Close()
		session.Warm(pipeline.StepBytes(run), p.Neighbours(r.peers[i])...)
		configs = append(configs, unattended(pipeline.Config{
			Worker: plan.WorkerID{Peer: r.peers[i], Device: "cpu"}, Run: run, Plan: p, Device: device,
			Data: randomTokens{vocab: c.model.Vocab, context: c.model.Context}, Exchange: pipeline.Paced(session, device),
		}))
	}
	var mu sync.Mutex // guards at
	at := map[plan.Step]time.Time{}
	err = train(t.Context(), steps, configs, nil, func(id plan.WorkerID, s pipeline.StepResult) {
		mu.Lock()
		defer mu.Unlock()
		if id == p.Coordinator() {
			at[s.Step] = time.Now()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return at[6].Sub(at[3]) / 3
}

// paces returns what the simulator says of it.
func (c *scheduleCase) paces(t *testing.T, kind string, shape link.LinkConditions) (waits, ahead time.Duration) {
	warmups := schedule.DepthWarmups(c.stages, 1)
	if kind != "1f1b" {
		warmups = nil
	}
	p, err := c.plan(trial{spec: kind, warmups: warmups}, 1)
	if err != nil {
		t.Fatal(err)
	}
	list, err := pipeline.Programs(p)
	if err != nil {
		t.Fatal(err)
	}
	hop := schedule.Hop{Transfer: schedule.Nanos(int64(messageBytes) * int64(time.Second) / shape.BytesPerS), Latency: schedule.Nanos(shape.Delay)}
	row := p.Replicas[0].Stages
	costs, stages := schedule.Costs{Boundaries: make([]schedule.Boundary, len(row)-1)}, make([]sim.Stage, len(row))
	for i, place := range row {
		costs.Stages = append(costs.Stages, c.split(t, place.Layers))
		stages[i].Device = list.Holder(0, schedule.Stage(i))
		if i > 0 && stages[i].Device != stages[i-1].Device {
			costs.Boundaries[i-1] = schedule.Boundary{Activation: hop, Gradient: hop}
		}
	}
	for i := range stages {
		if stages[i].Device != stages[len(stages)-1].Device {
			stages[i].Commit, stages[i].Report = hop.Latency, hop.Latency
		}
	}
	passes, err := schedule.Intervals(list, schedule.Timing{Replicas: []schedule.Costs{costs}})
	if err != nil {
		t.Fatal(err)
	}
	tail := sim.Tail{Stages: [][]sim.Stage{stages}}
	return time.Duration(tail.After(passes)), time.Duration(tail.PostValidated(passes[0]))
}

// split returns the times of a device's passes over some layers, the backward in its two parts.
func (c *scheduleCase) split(t *testing.T, layers plan.LayerRange) (out schedule.StageTime) {
	device, err := emulate.New(null.New(), emulate.Options{Profile: c.profiles[0]})
	if err != nil {
		t.Fatal(err)
	}
	stack, err := model.NewStack(model.StackConfig{
		Device: device, Model: c.model, First: layers.First, End: layers.End, MicroBatch: 1, Slots: 1, Moments: 2, SplitBackward: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stack.Close()
	q, err := device.NewQueue()
	if err != nil {
		t.Fatal(err)
	}
	since := func(f func()) schedule.Nanos {
		before := device.BusyTime()
		f()
		return schedule.Nanos(device.BusyTime() - before)
	}
	out.Forward = since(func() { stack.Slot(0).Forward(q, model.Noise{}) })
	out.Input = since(func() { stack.Slot(0).BackwardInputSegment(q, model.Segment{}, 1) })
	out.Weight = since(func() { stack.Slot(0).BackwardWeight(q, func(int) {}) })
	return out
}
