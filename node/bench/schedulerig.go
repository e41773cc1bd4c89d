package bench

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"pnode/kernels"
	"pnode/kernels/emulate"
	"pnode/kernels/null"
	"pnode/pipeline"
	"pnode/pipeline/link"
	"pnode/pipeline/schedule"
	"pnode/pipeline/trace"
	"pnode/planner/cost"
	"pnode/planner/elastic"
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
	network, err := link.NewEmulated(link.EmulatedOptions{Peers: stages, Seed: 1, Conditions: queued(shape)})
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
	run.Train.Micros, run.Train.SumGroups = c.micros, len(p.Replicas)
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
		session.Warm(pipeline.StepBytes(run), p.Neighbours(r.peers[i])...)
		configs = append(configs, unattended(pipeline.Config{
			Worker: plan.WorkerID{Peer: r.peers[i], Device: "cpu"}, Run: run, Plan: p, Device: device,
			Data: randomTokens{vocab: c.model.Vocab, context: c.model.Context}, Exchange: pipeline.Paced(session, device),
		}))
	}
	ran, err = traced(ctx, steps, configs)
	return ran, p, err
}

// trial is one schedule to run.
type trial struct {
	name, cap string
	spec      string // of the plan
	warmups   []int
	// memoryBytes is what each device has; nil for any amount.
	memoryBytes []int64
	// place changes the placement of a stage; nil changes none.
	place func(stage int, p *plan.Placement)
}

// trials returns the elastic schedule under each cap, and those to compare it with. First comes the
// one with the most traffic: connections forget on slower schedules what they can carry.
func (c *scheduleCase) trials(shape link.LinkConditions, wireBytes int) ([]trial, error) {
	var all []trial
	for _, limit := range []struct {
		name   string
		of1F1B int // activations, in those that 1F1B keeps; 0: no limit
	}{{noCap, 0}, {"2x", 2}, {"1f1b", 1}} {
		t := trial{name: elasticName, cap: limit.name, spec: "1f1b"}
		var caps []int
		var err error
		if limit.of1F1B > 0 {
			for stage := range c.stages {
				caps = append(caps, limit.of1F1B*(c.stages-stage))
			}
			if t.memoryBytes, err = c.capped(caps); err != nil {
				return nil, err
			}
		}
		if t.warmups, err = c.elastic(shape, wireBytes, caps); err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	groups, shorter, err := c.groups(c.costs(shape, wireBytes), all[0])
	if err != nil {
		return nil, err
	}
	if shorter {
		all = append(all, groups)
	}
	all = append(all, trial{name: "1f1b", cap: noCap, spec: "1f1b", warmups: schedule.DepthWarmups(c.stages, 1)})
	for _, name := range []string{"gpipe", "depth-first", "breadth-first"} {
		all = append(all, trial{name: name, cap: noCap, spec: name})
	}
	return all, nil
}

// elastic returns the warm-ups that the planner would choose for messages of so many bytes.
func (c *scheduleCase) elastic(shape link.LinkConditions, wireBytes int, caps []int) ([]int, error) {
	line := cost.Link{BytesPerS: shape.BytesPerS, RTTNanos: 2 * shape.Delay.Nanoseconds()}
	p := elastic.Problem{Micros: schedule.MaxNumber, MarginPercent: elastic.UsualMargin}
	for i, t := range c.times {
		room := int64(math.MaxInt32)
		if caps != nil {
			room = int64(caps[i])
		}
		p.Stages = append(p.Stages, elastic.Stage{Time: t, RoomBytes: room, SlotBytes: 1})
		if i > 0 {
			p.Boundaries = append(p.Boundaries, elastic.Boundary{Elements: int64(wireBytes-plan.CodecFront) / 4, Forth: line, Back: line})
		}
	}
	d, err := elastic.Choose(p)
	return d.Warmups, err
}

// groups returns interleaving in the groups that end first, and whether its step is shorter than the
// elastic trial's: it fills and drains sooner where links leave room for the traffic of chunks.
func (c *scheduleCase) groups(costs schedule.Costs, plain trial) (t trial, shorter bool, err error) {
	p := elastic.Interleaving{Workers: c.stages, Micros: c.micros}
	if p.Costs, err = c.chunked(costs, chunksPerStage*c.stages); err != nil {
		return t, false, err
	}
	g, err := elastic.ChooseGroups(p)
	if err != nil {
		return t, false, err
	}
	t = trial{name: groupsName, cap: noCap, spec: g.Spec(p).String()}
	step, err := c.step(plain, costs)
	if err != nil {
		return t, false, err
	}
	grouped, err := c.step(t, costs)
	if errors.Is(err, schedule.ErrInvalid) || errors.Is(err, schedule.ErrBadShape) {
		return t, false, nil // workers cannot run it
	}
	return t, grouped < step, err
}

// step returns the simulated time of a trial.
func (c *scheduleCase) step(t trial, costs schedule.Costs) (time.Duration, error) {
	plan, err := c.plan(t, 1)
	if err != nil {
		return 0, err
	}
	_, step, err := c.predict(plan, costs)
	return step, err
}

// groupOf returns the size of a schedule's groups of micro-batches: otherwise where it has none, 0
// where they differ.
func groupOf(spec schedule.Spec, otherwise int) int {
	for _, p := range spec.Params {
		switch p.Name {
		case "k":
			return p.Values[0]
		case "f", "b":
			if n := len(p.Values); n > 1 && slices.Max(p.Values[:n-1]) != slices.Min(p.Values[:n-1]) {
				return 0
			}
			otherwise = p.Values[0]
		}
	}
	return otherwise
}
