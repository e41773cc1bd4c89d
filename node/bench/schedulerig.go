package bench

import (
	"context"
	"errors"
	"math"
	"time"

	"golang.org/x/sync/errgroup"

	"pnode/kernels"
	"pnode/kernels/emulate"
	"pnode/kernels/null"
	"pnode/pipeline"
	"pnode/pipeline/link"
	"pnode/pipeline/schedule"
	"pnode/pipeline/trace"
	"pnode/planner/plan"
)

// scheduleRig is an emulated network of one peer a stage. Its connections outlive the
// schedules that are run on it, so that all find them warm.
type scheduleRig struct {
	network    *link.Emulated
	peers      []plan.PeerID
	endpoints  []*link.Endpoint
	running    errgroup.Group
	stop       context.CancelFunc
	generation plan.Generation
}

func newScheduleRig(stages int, shape link.LinkConditions) (*scheduleRig, error) {
	roundTrip := int64(2*shape.Delay + 200*time.Millisecond)
	shape.QueueBytes = max(1<<20, int(shape.BytesPerS/1000*roundTrip/int64(time.Millisecond)))
	network, err := link.NewEmulated(link.EmulatedOptions{Peers: stages, Seed: 1, Conditions: shape})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	r := &scheduleRig{network: network, peers: network.Peers(), stop: stop}
	for i := range r.peers {
		e := link.NewEndpoint(network.Network(i), link.Options{PeerTimeout: time.Minute})
		r.endpoints = append(r.endpoints, e)
		r.running.Go(func() error { return e.Run(ctx) })
	}
	return r, nil
}

func (r *scheduleRig) close() {
	r.stop()
	_ = r.running.Wait() // errors of endpoints that are being stopped
	r.network.Close()
}

// maxWarmRounds bounds how often a step is run again while it gets shorter by more than one part in
// warmPart.
const warmSteps, measuredSteps, maxWarmRounds, warmPart = 2, 2, 5, 50

// warm runs the schedule until the connections have found their speed: until a step is no shorter
// than before. It returns the bytes that a message takes on the line then.
func (r *scheduleRig) warm(ctx context.Context, c *scheduleCase, warmups []int) (wireBytes int, err error) {
	t := trial{name: elasticName, cap: noCap, spec: "1f1b", warmups: warmups}
	shortest := time.Duration(math.MaxInt64)
	for range maxWarmRounds {
		before := r.network.LinkCounts(r.peers[0], r.peers[1]).Bytes
		ran, p, err := r.train(ctx, c, t, warmSteps)
		if err != nil {
			return 0, err
		}
		wireBytes = int(r.network.LinkCounts(r.peers[0], r.peers[1]).Bytes-before) / (warmSteps * c.micros)
		_, step := pace(ran.Timeline(trace.Key{Generation: p.Generation, Step: warmSteps}), p)
		if step > shortest-shortest/warmPart {
			break
		}
		shortest = step
	}
	return wireBytes, nil
}

// measure runs a trial and simulates it.
func (r *scheduleRig) measure(ctx context.Context, c *scheduleCase, t trial, costs schedule.Costs) (ScheduleRun, error) {
	run := ScheduleRun{Name: t.name, Cap: t.cap, Spec: t.spec, Warmups: t.warmups}
	ran, p, err := r.train(ctx, c, t, measuredSteps)
	if errors.Is(err, schedule.ErrBadShape) || errors.Is(err, kernels.ErrOutOfMemory) {
		run.Refused = err.Error()
		return run, nil
	}
	if err != nil {
		return run, err
	}
	run.PeriodMS, run.StepMS = math.Inf(1), math.Inf(1)
	for _, key := range ran.Keys() {
		if key.Step > measuredSteps {
			continue
		}
		period, step := pace(ran.Timeline(key), p) // what else the machine does makes them longer only
		run.PeriodMS, run.StepMS = min(run.PeriodMS, milliseconds(period)), min(run.StepMS, milliseconds(step))
	}
	period, step, err := c.predict(p, costs)
	run.PredictedPeriodMS, run.PredictedStepMS = milliseconds(period), milliseconds(step)
	run.Error = run.PredictedStepMS/run.StepMS - 1
	return run, err
}

// train runs a trial for some steps, in a generation of their own.
func (r *scheduleRig) train(ctx context.Context, c *scheduleCase, t trial, steps int) (ran trace.Trace, p plan.Plan, err error) {
	r.generation++
	if p, err = c.plan(t, r.generation); err != nil {
		return ran, p, err
	}
	run := newRun(c.model)
	run.Train.Micros = c.micros
	var configs []pipeline.Config
	for i, e := range r.endpoints {
		profile := c.profiles[i]
		if t.memoryBytes != nil {
			profile.MemoryBytes = t.memoryBytes[i]
		}
		device, err := emulate.New(null.New(), emulate.Options{Name: "cpu", Profile: profile, Slack: emulate.PacedSlack})
		if err != nil {
			return ran, p, err
		}
		session := e.Session(r.generation, r.peers)
		defer session.Close()
		session.Warm(p.Neighbours(r.peers[i])...)
		configs = append(configs, unattended(pipeline.Config{
			Worker: plan.WorkerID{Peer: r.peers[i], Device: "cpu"}, Run: run, Plan: p, Device: device,
			Data: randomTokens{vocab: c.model.Vocab, context: c.model.Context}, Exchange: pipeline.Paced(session, device),
		}))
	}
	ran, err = traced(ctx, steps, configs)
	return ran, p, err
}
