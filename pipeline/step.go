package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"pnode/kernels"
	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// stepRun holds what exists within one step only: the worker makes it at the step's begin and drops
// it at its end. It belongs to the worker's goroutine, but for what its own goroutines are given.
type stepRun struct {
	program
	cfg      *Config
	queue    kernels.Queue
	squares  kernels.Buffer // results of SumSquares for a layer
	opt      Optimizer
	step     plan.Step
	samples  samples
	begun    time.Time
	stages   []*stageRun
	shadows  []*stageRun // float32 shadows of replica 0's stages; none where they are of no use
	blind    bool        // a stage here has no shadow
	overflow *overflow
	losses   map[plan.Micro][]float32
	report   *wire.Report // what this worker reports of the step, once it has all gradients; nil before
	// progress watches over what the step waits for; nil: nobody does.
	progress *progress

	// ctx ends with the evaluation or the program that runs, for the reason of what failed first.
	ctx context.Context
	// A program's reductions and transfers run in group. What is to be sent goes to sends, what is to
	// be computed to launches; both are nil outside of a program.
	cancel   context.CancelCauseFunc
	group    *errgroup.Group
	sends    chan *transfer
	launches chan launch
	settling time.Time // when the program began to wait for its end
	awaited  []await   // by the next launch
	// before is the step before while that is an optimistic one. secondTry says that activations are those of a second try.
	before    *optimisticStep
	secondTry bool
	time      timeline
}

// run carries out the program: afterwards every layer here has the step's gradient, summed over
// micro-batches and replicas. Its goroutines end with it.
func (s *stepRun) run(ctx context.Context) error {
	s.begin(ctx)
	defer s.cancel(nil)
	if before := s.before; before == nil {
		zeroGrads(s)
	} else { // which may need the gradients
		s.group.Go(func() error { return before.agreement.heed(s) })
	}
	actions := s.list.Workers[s.number]
	for i, a := range actions {
		err := s.ctx.Err() // a lone stage meets it nowhere else
		if err == nil {
			err = s.before.await(s, a)
		}
		if err == nil {
			s.prefetch(actions[i:])
			err = s.do(a)
		}
		if err != nil {
			return s.fail(fmt.Errorf("%v: %w", a, err))
		}
	}
	return nil
}

// zeroGrads begins the gradients of a step.
func zeroGrads(s *stepRun) {
	for _, h := range s.stages {
		h.stack.ZeroGrads(s.queue)
	}
}

// begin starts the goroutines of a program.
func (s *stepRun) begin(ctx context.Context) {
	ctx, s.cancel = context.WithCancelCause(ctx)
	s.group, s.ctx = errgroup.WithContext(ctx)
	sends, launches := make(chan *transfer, maxSends), make(chan launch, maxLaunches)
	s.sends, s.launches, s.awaited, s.time.idle = sends, launches, nil, time.Now()
	s.group.Go(func() error { return s.sendAll(sends) })
	s.group.Go(func() error { return s.watch(launches) })
}

// settle waits for the goroutines of a program, which sends and computes no more.
func (s *stepRun) settle() error {
	if s.sends != nil {
		close(s.sends)
		close(s.launches)
		s.sends, s.launches = nil, nil
	}
	return s.group.Wait()
}

// fail ends a program after an error, which may only say that something else failed first: the
// returned error names that, too.
func (s *stepRun) fail(err error) error {
	cause := context.Cause(s.ctx)
	s.cancel(err)
	return errors.Join(cause, s.settle(), err)
}

// do interprets one action. Receives only mark where a message is due: the action that computes with
// it waits for its tag. A reduction begins with the last gradient, layer by layer.
func (s *stepRun) do(a schedule.Action) error {
	if a.Op == schedule.Step { // ends the program
		err := s.queue.Sync()
		s.settling = time.Now()
		err = errors.Join(err, s.settle())
		s.settling = later(s.time.idle, s.settling)
		return err
	}
	h, p := find(s.stages, a.Replica, a.Stage), s.part(a.Micro)
	switch a.Op {
	case schedule.Forward:
		return s.forward(h, p)
	case schedule.Backward, schedule.BackwardInput:
		return s.backward(h, p, a)
	case schedule.BackwardWeight:
		defer h.slots.paid(p.micro)
		return s.launch(a, &h.times.Backward, func() {
			if p.isFirst() { // with the last segment goes the whole micro-batch
				h.slot(p.micro).BackwardWeight(s.queue, s.reduceAfter(h, p.micro))
			}
		})
	case schedule.Recompute:
		return s.launch(a, &h.times.Backward, func() { h.slot(p.micro).Restore(s.queue, p.Segment) })
	case schedule.SendActivation:
		// Nothing writes to the rows before the gradient for them has come.
		if _, err := s.send(h, h.output(p), s.tag(wire.Activation, h, h.Stage+1, p)); err != nil {
			return err
		}
		return s.follow(launch{action: a})
	case schedule.SendGradient:
		defer h.slots.paid(p.micro)
		t, err := s.send(h, h.inputGrad(p), s.tag(wire.Gradient, h, h.Stage-1, p))
		slot := h.slots.of(p.micro)
		h.sending[slot] = append(h.sending[slot], t) // the slot's next backward waits for it
		if err != nil {
			return err
		}
		return s.follow(launch{action: a})
	case schedule.Gather:
		s.awaited = append(s.awaited, await{&h.times, a})
		return h.gathered(s.queue, s.opt)
	case schedule.Reduce, schedule.ReceiveActivation, schedule.ReceiveGradient:
		return nil
	default:
		return fmt.Errorf("%w: this runner has no action %v", ErrBadConfig, a.Op)
	}
}

// forward runs a part through a stage.
func (s *stepRun) forward(h *stageRun, p part) (err error) {
	open := func() {}
	if p.isFirst() {
		if open, err = s.open(h, p.micro); err != nil {
			return err
		}
	}
	var from []kernels.View // of the input, where it is to be copied
	switch {
	case h.first():
	case h.prev != nil:
		from = h.prev.output(p)
	default:
		if from, err = s.receive(h, h.input(p), s.tag(wire.Activation, h, h.Stage, p)); err != nil {
			return err
		}
	}
	if h.sends() && !s.evaluates(p.micro) { // the gradient has its place from now on
		s.ask(h, h.outputGrad(p), s.tag(wire.Gradient, h, h.Stage, p))
	}
	var noise model.Noise // of dropout: none in an evaluation
	if !s.evaluates(p.micro) {
		noise = model.Noise{On: true, Seed: s.spec.Train.Seed, Step: int(s.step), Micro: int(s.cfg.First + p.micro)}
	}
	return s.launch(h.action(schedule.Forward, s.numberOf(p)), &h.times.Forward, func() {
		open()
		if from != nil {
			copyRows(s.queue, h.input(p), from)
		}
		h.slot(p.micro).ForwardSegment(s.queue, p.Segment, noise)
	})
}

// open returns a micro-batch a slot and returns what enqueues its tokens, as far as the stage needs
// them: the two ends do, and attention that stays within documents. Then a stage between reads them
// itself, since a neighbour's word on them would be one more message.
func (s *stepRun) open(h *stageRun, micro plan.Micro) (enqueue func(), err error) {
	if err := h.slots.take(micro); err != nil {
		return nil, err
	}
	slot, train := h.slot(micro), s.spec.Train
	var tokens, targets []int32
	switch {
	case !h.first() && !h.last() && !h.stack.Masked():
	case s.evaluates(micro):
		tokens, targets, err = s.cfg.Data.HeldOut(s.ctx, (int(micro)-train.Micros)%heldOutMicros, train.MicroBatch)
	default:
		step, sample := s.samples.of(micro)
		tokens, targets, err = s.cfg.Data.Micro(s.ctx, step, sample, train.MicroBatch)
	}
	return func() { // the slices stay as they are
		if h.stack.Masked() {
			slot.SetDocuments(s.queue, s.cfg.Data.DocumentStarts(tokens))
		}
		if h.first() {
			slot.SetTokens(s.queue, tokens)
		}
		if h.last() {
			slot.SetTargets(s.queue, targets)
		}
	}, err
}

// backward computes the gradient of a stage's input and, unless the program splits the two, adds the
// micro-batch to the parameters' gradients: the last segment adds the whole micro-batch. On the last
// stage the losses come with it.
func (s *stepRun) backward(h *stageRun, p part, a schedule.Action) error {
	var from []kernels.View // of the output's gradient, where it is to be copied
	switch {
	case h.last():
	case h.next != nil:
		from = h.next.inputGrad(p)
		h.next.slots.paid(p.micro)
	default:
		var err error
		if from, err = s.receive(h, h.outputGrad(p), s.tag(wire.Gradient, h, h.Stage, p)); err != nil {
			return err
		}
	}
	if p.isLast() {
		at := h.slots.of(p.micro)
		for _, t := range h.sending[at] {
			if <-t.done; t.event != nil {
				s.queue.Wait(t.event)
			}
		}
		h.sending[at] = nil
	}
	slot := h.slot(p.micro)
	// The scale makes the step's gradient the mean over all of its tokens.
	scale := float32(1 / float64(s.spec.Train.Micros*s.tokensPerMicro()))
	err := s.launch(a, &h.times.Backward, func() {
		if from != nil {
			copyRows(s.queue, h.outputGrad(p), from)
		}
		if a.Op == schedule.Backward && p.Count <= 1 {
			slot.BackwardEach(s.queue, scale, s.reduceAfter(h, p.micro))
		} else {
			slot.BackwardInputSegment(s.queue, p.Segment, scale)
			if a.Op == schedule.Backward && p.isFirst() {
				slot.BackwardWeight(s.queue, s.reduceAfter(h, p.micro))
			}
		}
		if h.last() && p.isFirst() {
			s.losses[p.micro] = readLosses(s.queue, slot)
		}
	})
	if err == nil && a.Op == schedule.Backward {
		h.slots.paid(p.micro)
	}
	return err
}

// copyRows enqueues copies between two places on the device.
func copyRows(q kernels.Queue, to, from []kernels.View) {
	for i, v := range from {
		q.Do(kernels.Copy(to[i], v, v.Len))
	}
}

// readLosses enqueues a copy of the losses [B*T] of a slot.
func readLosses(q kernels.Queue, slot *model.Slot) []float32 {
	losses := slot.Losses()
	rows := make([]float32, losses.Len)
	q.Read(kernels.Float32Bytes(rows), losses)
	return rows
}

// mean adds up in row order.
func mean(rows []float32) float64 {
	sum := 0.0
	for _, l := range rows {
		sum += float64(l)
	}
	return sum / float64(len(rows))
}
