package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"pnode/kernels/emulate"
	"pnode/pipeline"
	"pnode/pipeline/collective"
	"pnode/pipeline/link"
	"pnode/pipeline/schedule"
	"pnode/pipeline/wire"
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

func newScheduleRig(stages int, shape link.Shape) (*scheduleRig, error) {
	roundTrip := int64(2*shape.Delay + 200*time.Millisecond)
	shape.QueueBytes = max(1<<20, int(shape.BytesPerS/1000*roundTrip/int64(time.Millisecond)))
	network, err := link.NewEmulated(link.EmulatedOptions{Peers: stages, Seed: 1, Shape: shape})
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

// warm runs the schedule until the connections have found their speed, which is when a step
// is no shorter than before, and gives the bytes that a message takes on the line then.
func (r *scheduleRig) warm(ctx context.Context, c *scheduleCase, warmups []int) (wireBytes int, err error) {
	t := trial{name: elasticName, cap: noCap, spec: "1f1b", warmups: warmups}
	shortest := time.Duration(math.MaxInt64)
	for range maxWarmRounds {
		before := r.network.LinkCounts(r.peers[0], r.peers[1]).Bytes
		w, err := r.steps(ctx, c, t, warmSteps)
		if err != nil {
			return 0, err
		}
		wireBytes = int(r.network.LinkCounts(r.peers[0], r.peers[1]).Bytes-before) / (warmSteps * c.micros)
		step := w.marks[warmSteps].end
		if step > shortest-shortest/warmPart {
			break
		}
		shortest = step
	}
	return wireBytes, nil
}

const (
	warmSteps     = 2
	measuredSteps = 2
	// maxWarmRounds bounds how often warmSteps are run; what is less than one part in warmPart
	// shorter is no shorter.
	maxWarmRounds, warmPart = 5, 50
)

// measure runs a trial and simulates it.
func (r *scheduleRig) measure(ctx context.Context, c *scheduleCase, t trial, costs schedule.Costs) (ScheduleRun, error) {
	run := ScheduleRun{Name: t.name, Cap: t.cap, Spec: t.spec, Warmups: t.warmups}
	p, err := c.plan(t, 1)
	if errors.Is(err, schedule.ErrBadShape) {
		run.Refused = err.Error()
		return run, nil
	}
	if err != nil {
		return run, err
	}
	period, step, err := c.predict(p, costs)
	if err != nil {
		return run, err
	}
	w, err := r.steps(ctx, c, t, measuredSteps)
	if why, refused := refusal(err); refused {
		run.Refused = why
		return run, nil
	}
	if err != nil {
		return run, err
	}
	var periods, steps []float64
	for s := range measuredSteps {
		mark := w.marks[plan.Step(s+1)]
		periods = append(periods, milliseconds(steadyPeriod(mark.gradients, p)))
		steps = append(steps, milliseconds(mark.end))
	}
	run.PeriodMS, run.StepMS = slices.Min(periods), slices.Min(steps) // what else the machine does makes them longer only
	run.PredictedPeriodMS, run.PredictedStepMS = milliseconds(period), milliseconds(step)
	run.Error = run.PredictedStepMS/run.StepMS - 1
	return run, nil
}

// steps trains for some steps in a generation of their own.
func (r *scheduleRig) steps(ctx context.Context, c *scheduleCase, t trial, steps int) (*stopwatch, error) {
	r.generation++
	p, err := c.plan(t, r.generation)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watch := &stopwatch{marks: map[plan.Step]*mark{}, left: steps * c.stages, over: cancel}
	group, ctx := errgroup.WithContext(ctx)
	var workers []*pipeline.Worker
	defer func() {
		for _, w := range workers {
			w.Close()
		}
	}()
	for i, e := range r.endpoints {
		dev, err := c.device(i, t)
		if err != nil {
			return nil, err
		}
		session := e.Session(r.generation, r.peers)
		defer session.Close()
		session.Warm(p.Neighbours(r.peers[i])...)
		w, err := r.worker(c, p, i, dev, watched{pipeline.Paced(session, dev), watch}, watch)
		if err != nil {
			return nil, err
		}
		workers = append(workers, w)
	}
	for _, w := range workers {
		group.Go(func() error { return w.Run(ctx, ctx) })
	}
	if err := group.Wait(); watch.left > 0 {
		return nil, err
	}
	return watch, nil
}

func (r *scheduleRig) worker(c *scheduleCase, p plan.Plan, i int, dev *emulate.Device, exchange collective.Exchange, watch *stopwatch) (*pipeline.Worker, error) {
	w, err := pipeline.New(pipeline.Config{
		Seat: plan.WorkerID{Peer: r.peers[i], Device: "cpu"}, Run: c.run(), Plan: p, Device: dev,
		Data: watchedData{randomTokens{StepModel{Vocab: c.model.Vocab, Context: c.model.Context}}, watch}, Exchange: exchange, Keeper: noKeeper{},
		Stop: func() bool { return false }, OnLoaded: func() {}, OnStep: watch.stepDone, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, fmt.Errorf("stage %d: %w", i, err)
	}
	return w, nil
}

// stopwatch notes when what happens in each step.
type stopwatch struct {
	mu    sync.Mutex // guards the rest
	marks map[plan.Step]*mark
	left  int    // steps of workers
	over  func() // called when none is left
}

// mark is one step: when it began, and since then when it ended on the first stage and when
// each micro-batch's gradient left the second one.
type mark struct {
	begin     time.Time
	end       time.Duration
	gradients []time.Duration
}

// at is the mark of a step; the caller holds mu.
func (s *stopwatch) at(step plan.Step) *mark {
	m := s.marks[step]
	if m == nil {
		m = &mark{begin: time.Now()}
		s.marks[step] = m
	}
	return m
}

// stepBegan is told of every batch that a stage asks for; the first stage's first one is
// the step's beginning, since all other stages wait for it.
func (s *stopwatch) stepBegan(step plan.Step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at(step)
}

// sent is told of every message.
func (s *stopwatch) sent(tag wire.Tag) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch m := s.at(tag.Step); {
	case tag.Kind == wire.Gradient && tag.Stage == 0:
		m.gradients = append(m.gradients, time.Since(m.begin))
	case tag.Kind == wire.KindReport:
		m.end = max(m.end, time.Since(m.begin))
	}
}

func (s *stopwatch) stepDone(pipeline.StepResult) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left--; s.left == 0 {
		s.over()
	}
}

// watched notes what a worker sends.
type watched struct {
	collective.Exchange
	watch *stopwatch
}

func (w watched) Send(ctx context.Context, to plan.PeerID, f wire.Frame) error {
	w.watch.sent(f.Tag)
	return w.Exchange.Send(ctx, to, f)
}

// watchedData notes when a step begins.
type watchedData struct {
	randomTokens
	watch *stopwatch
}

func (d watchedData) Micro(ctx context.Context, step plan.Step, micro plan.Micro, batch int) (tokens, targets []int32, err error) {
	d.watch.stepBegan(step)
	return d.randomTokens.Micro(ctx, step, micro, batch)
}
